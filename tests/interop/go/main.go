// Runs a Go producer or consumer of RocketMQ, and prints each event as a line of JSON.
//
//	driver produce --name-servers 127.0.0.1:9876;127.0.0.1:9877 --group G
//	driver consume --name-servers 127.0.0.1:9876;127.0.0.1:9877 --group G --topics T1,T2
//
// With DRIVER_KEY=access:secret in the environment the client signs its requests.
//
// The producer reads a message from each line of standard input, as {"topic": T, "body": B}, sends it, and prints
// {"event": "acked"}, or {"event": "failed"} with the error. The consumer prints {"event": "received"} for each
// message. Both print {"event": "started"} first, and end at the end of standard input. The library logs to standard
// error.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// A line of output.
type event struct {
	Event  string `json:"event"`
	Topic  string `json:"topic,omitempty"`
	Body   string `json:"body,omitempty"`
	Broker string `json:"broker,omitempty"`
	Error  string `json:"error,omitempty"`
}

// A message to send, one line of input.
type order struct {
	Topic string `json:"topic"`
	Body  string `json:"body"`
}

var printing sync.Mutex

// Print a line; the lock keeps lines of several goroutines apart.
func printEvent(happened event) {
	line, err := json.Marshal(happened)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf("%s\n", line)
}

type options struct {
	nameServers []string
	group       string
	topics      []string
}

func credentials() *primitive.Credentials {
	access, secret, signs := strings.Cut(os.Getenv("DRIVER_KEY"), ":")
	if !signs {
		return nil
	}
	return &primitive.Credentials{AccessKey: access, SecretKey: secret}
}

func produce(chosen options) error {
	settings := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver(chosen.nameServers)),
		producer.WithGroupName(chosen.group),
	}
	if key := credentials(); key != nil {
		settings = append(settings, producer.WithCredentials(*key))
	}
	sender, err := rocketmq.NewProducer(settings...)
	if err != nil {
		return err
	}
	if err := sender.Start(); err != nil {
		return err
	}
	printEvent(event{Event: "started"})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var message order
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			return err
		}
		printEvent(send(sender, message))
	}
	return sender.Shutdown()
}

func send(sender rocketmq.Producer, message order) event {
	result, err := sender.SendSync(context.Background(), primitive.NewMessage(message.Topic, []byte(message.Body)))
	switch {
	case err != nil:
		return event{Event: "failed", Topic: message.Topic, Body: message.Body, Error: err.Error()}
	case result.Status != primitive.SendOK:
		return event{Event: "failed", Topic: message.Topic, Body: message.Body, Error: fmt.Sprintf("status %d", result.Status)}
	}
	return event{Event: "acked", Topic: message.Topic, Body: message.Body, Broker: result.MessageQueue.BrokerName}
}

func consume(chosen options) error {
	settings := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver(chosen.nameServers)),
		consumer.WithGroupName(chosen.group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	if key := credentials(); key != nil {
		settings = append(settings, consumer.WithCredentials(*key))
	}
	receiver, err := rocketmq.NewPushConsumer(settings...)
	if err != nil {
		return err
	}
	for _, topic := range chosen.topics {
		if err := receiver.Subscribe(topic, consumer.MessageSelector{}, received); err != nil {
			return err
		}
	}
	if err := receiver.Start(); err != nil {
		return err
	}
	printEvent(event{Event: "started"})
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return receiver.Shutdown()
}

func received(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	for _, message := range messages {
		printEvent(event{Event: "received", Topic: message.Topic, Body: string(message.Body)})
	}
	return consumer.ConsumeSuccess, nil
}

func main() {
	works := map[string]func(options) error{"produce": produce, "consume": consume}
	if len(os.Args) < 2 || works[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: driver produce|consume --name-servers LIST --group NAME [--topics LIST]")
		os.Exit(2)
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	nameServers := flags.String("name-servers", "127.0.0.1:9876", "addresses of NameServers, separated by semicolons")
	group := flags.String("group", "interop", "group of the producer or consumer")
	topics := flags.String("topics", "", "topics of the consumer, separated by commas")
	// With ExitOnError, Parse ends the process if a flag is invalid.
	_ = flags.Parse(os.Args[2:])
	chosen := options{strings.Split(*nameServers, ";"), *group, strings.Split(*topics, ",")}
	if err := works[os.Args[1]](chosen); err != nil {
		printEvent(event{Event: "broken", Error: err.Error()})
		os.Exit(1)
	}
}
