package main

import (
	"fmt"
	"hash"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// conversation is what sarama requires of a library of SCRAM.
type conversation struct {
	hash scram.HashGeneratorFcn
	now  *scram.ClientConversation
}

func (s *conversation) Begin(user, password, authorization string) error {
	client, err := s.hash.NewClient(user, password, authorization)
	if err == nil {
		s.now = client.NewConversation()
	}
	return err
}

func (s *conversation) Step(challenge string) (string, error) { return s.now.Step(challenge) }

func (s *conversation) Done() bool { return s.now.Done() }

// bearer provides a token.
type bearer string

func (b bearer) Token() (*sarama.AccessToken, error) { return &sarama.AccessToken{Token: string(b)}, nil }

func settings(c *Case) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Net.DialTimeout, config.Net.ReadTimeout = c.limit(), c.limit()
	config.Net.TLS.Enable, config.Net.TLS.Config = true, c.tls()
	config.Metadata.Retry.Max = 1
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	if c.Mechanism != "TLS" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(c.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = c.User, c.Secret
		config.Net.SASL.TokenProvider = bearer(c.Secret)
	}
	if make, found := hashes[c.Mechanism]; found {
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			return &conversation{hash: scram.HashGeneratorFcn(make.(func() hash.Hash))}
		}
	}
	return config
}

func viaSarama(c *Case) error {
	client, err := sarama.NewClient([]string{c.Bootstrap}, settings(c))
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	for _, value := range c.values() {
		message := &sarama.ProducerMessage{Topic: c.Topic, Value: sarama.StringEncoder(value)}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	partition, err := consumer.ConsumePartition(c.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	var found []string
	for end := time.After(c.limit()); len(found) < len(c.values()); {
		select {
		case message := <-partition.Messages():
			found = append(found, string(message.Value))
		case <-end:
			return fmt.Errorf("read only %v", found)
		}
	}
	return c.compare(found)
}
