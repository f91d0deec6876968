package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func mechanism(c *Case) sasl.Mechanism {
	user := scram.Auth{User: c.User, Pass: c.Secret}
	switch c.Mechanism {
	case "PLAIN":
		return plain.Auth{User: c.User, Pass: c.Secret}.AsMechanism()
	case "SCRAM-SHA-256":
		return user.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return user.AsSha512Mechanism()
	case "token":
		user.IsToken = true
		return user.AsSha256Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: c.Secret}.AsMechanism()
	}
	return nil
}

func franz(c *Case) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.limit())
	defer cancel()
	options := []kgo.Opt{kgo.SeedBrokers(c.Bootstrap), kgo.DialTLSConfig(c.tls()), kgo.RequestRetries(2)}
	if way := mechanism(c); way != nil {
		options = append(options, kgo.SASL(way))
	}
	begin := map[string]map[int32]kgo.Offset{c.Topic: {0: kgo.NewOffset().AtStart()}}
	client, err := kgo.NewClient(append(options, kgo.ConsumePartitions(begin))...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	var records []*kgo.Record
	for _, value := range c.values() {
		records = append(records, &kgo.Record{Topic: c.Topic, Value: []byte(value)})
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	var found []string
	for len(found) < len(records) {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			found = append(found, string(record.Value))
		}
	}
	return c.compare(found)
}
