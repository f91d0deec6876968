// A member of a consumer group with franz-go; ../../members/launch.py documents arguments, commands and lines.
// With the consumer protocol the broker has the timeouts, and its assignor is the one that is named.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	lock  sync.Mutex
	owned = map[string]map[int32]bool{}
)

func change(partitions map[string][]int32, owns bool) {
	lock.Lock()
	defer lock.Unlock()
	count := 0
	for topic, numbers := range partitions {
		for _, number := range numbers {
			if owned[topic] == nil {
				owned[topic] = map[int32]bool{}
			}
			if owns {
				owned[topic][number] = true
			} else {
				delete(owned[topic], number)
			}
		}
	}
	for _, numbers := range owned {
		count += len(numbers)
	}
	fmt.Printf("owns %d\n", count)
}

func main() {
	settings := map[string]string{}
	for _, argument := range os.Args[1:] {
		key, value, _ := strings.Cut(argument, "=")
		settings[key] = value
	}
	ctx, cancel := context.WithCancel(context.Background())
	base := context.Background()
	if settings["protocol"] == "consumer" {
		// This release of franz-go has the protocol only for clients that opt in.
		base = context.WithValue(base, "opt_in_kafka_next_gen_balancer_beta", true)
	}
	balancer := kgo.RangeBalancer()
	if settings["assignor"] == "cooperative" {
		balancer = kgo.CooperativeStickyBalancer()
	}
	gain := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { change(partitions, true) }
	lose := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { change(partitions, false) }
	options := []kgo.Opt{
		kgo.WithContext(base),
		kgo.SeedBrokers(settings["bootstrap"]),
		kgo.ConsumerGroup(settings["group"]),
		kgo.ClientID(settings["client"]),
		kgo.ConsumeTopics(strings.Split(settings["topics"], ",")...),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.Balancers(balancer),
		kgo.OnPartitionsAssigned(gain),
		kgo.OnPartitionsRevoked(lose),
		kgo.OnPartitionsLost(lose),
	}
	if sessionMs, err := strconv.Atoi(settings["session_ms"]); err == nil {
		options = append(options,
			kgo.SessionTimeout(time.Duration(sessionMs)*time.Millisecond), kgo.HeartbeatInterval(500*time.Millisecond))
	}
	if strings.HasPrefix(settings["topics"], "^") {
		options = append(options, kgo.ConsumeRegex())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			_, topics, _ := strings.Cut(lines.Text(), " ")
			client.AddConsumeTopics(strings.Split(topics, ",")...)
		}
		cancel()
	}()
	for ctx.Err() == nil {
		client.PollFetches(ctx)
	}
	client.Close()
	fmt.Println("closed")
}
