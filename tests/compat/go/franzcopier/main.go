// Copies one topic into another in transactions with franz-go; ../../copiers/launch.py documents arguments and lines.
package main

import (
	"context"
	"errors"
	"time"

	"compat/copier"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	commands := copier.New()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(commands.Text("bootstrap")),
		kgo.TransactionalID(commands.Text("id")),
		kgo.TransactionTimeout(time.Duration(commands.Number("timeout_ms"))*time.Millisecond),
		kgo.ConsumerGroup(commands.Text("group")),
		kgo.ConsumeTopics(commands.Text("input")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.InstanceID(commands.Text("id")),
		kgo.SessionTimeout(10*time.Second),
		kgo.HeartbeatInterval(time.Second),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		panic(err)
	}
	// Before the first fetch, as initTransactions of the Java client: a killed instance may have left pending offsets, and
	// the fetch of stable offsets waits until its transaction is aborted.
	if err := patiently(func() error { return initialise(session) }); err != nil {
		panic(err)
	}
	copier.Print("ready")
	for number := 0; !commands.Stopped(); {
		wait, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		records := session.PollRecords(wait, commands.Number("size")).Records()
		cancel()
		if len(records) == 0 {
			continue
		}
		if err := copyRecords(commands, session, records, number); err != nil {
			copier.Print("failed %d %v", number, err)
			if errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) {
				copier.Fenced()
			}
			panic(err)
		}
		number++
	}
	session.Close()
	copier.Print("closed")
}

// initialise gets a producer id, which aborts the transaction of an earlier instance.
func initialise(session *kgo.GroupTransactSession) error {
	_, _, err := session.Client().ProducerID(context.Background())
	return err
}

// patiently waits until the transaction of a killed instance is aborted: franz-go leaves that to its user.
func patiently(begin func() error) error {
	err := begin()
	for until := time.Now().Add(120 * time.Second); errors.Is(err, kerr.ConcurrentTransactions) && time.Now().Before(until); {
		time.Sleep(20 * time.Millisecond)
		err = begin()
	}
	return err
}

func copyRecords(commands *copier.Commands, session *kgo.GroupTransactSession, records []*kgo.Record, number int) error {
	ctx, fate := context.Background(), commands.Fate()
	commands.Phase("begun", number, fate)
	if err := patiently(session.Begin); err != nil {
		return err
	}
	var copies []*kgo.Record
	for _, record := range records {
		value, partition := commands.Copied(string(record.Value), number, fate)
		copies = append(copies, &kgo.Record{Topic: commands.Text("output"), Partition: partition, Value: []byte(value)})
	}
	failed := session.ProduceSync(ctx, copies...).FirstErr()
	if failed != nil {
		copier.Print("failed %d %v", number, failed)
	}
	commands.Phase("produced", number, len(copies))
	commands.Phase("ending", number, fate)
	committed, err := session.End(ctx, kgo.TransactionEndTry(fate == "commit" && failed == nil))
	if err != nil {
		return err
	}
	if !committed {
		fate = "abort"
	}
	commands.Phase("ended", number, fate)
	return nil
}
