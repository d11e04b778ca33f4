// Sends pipelined with go-amqp and prints what it took, for bench_clients.py:
//
//	send HOST:PORT ADDRESS COUNT WARM WINDOW SIZE durable|not-durable
//
// WARM messages go first and are not counted.  At most WINDOW messages have no outcome; each has its own
// receipt, which is waited for in order.  One line of JSON: seconds by the clock and of processor time.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/Azure/go-amqp"
)

func main() {
	number := func(position int) int {
		value, err := strconv.Atoi(os.Args[position])
		check(err)
		return value
	}
	count, warm, window := number(3), number(4), number(5)
	body, durable := make([]byte, number(6)), os.Args[7] == "durable"
	for i := range body {
		body[i] = 'x'
	}
	ctx := context.Background()
	connection, err := amqp.Dial(ctx, "amqp://"+os.Args[1], &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	check(err)
	session, err := connection.NewSession(ctx, nil)
	check(err)
	sender, err := session.NewSender(ctx, os.Args[2], nil)
	check(err)

	send(ctx, sender, body, durable, warm, window)
	wall, cpu := time.Now(), processorTime()
	send(ctx, sender, body, durable, count, window)
	fmt.Printf("{\"wall\": %f, \"cpu\": %f}\n", time.Since(wall).Seconds(), processorTime()-cpu)
	check(connection.Close())
}

func send(ctx context.Context, sender *amqp.Sender, body []byte, durable bool, count, window int) {
	receipts := make([]amqp.SendReceipt, window)
	for i := 0; i < count+window; i++ {
		oldest := &receipts[i%window]
		if i >= window && i-window < count {
			state, err := oldest.Wait(ctx)
			check(err)
			if _, accepted := state.(*amqp.StateAccepted); !accepted {
				log.Fatalf("not accepted: %v", state)
			}
		}
		if i < count {
			message := amqp.NewMessage(body)
			message.Header = &amqp.MessageHeader{Durable: durable}
			var err error
			*oldest, err = sender.SendWithReceipt(ctx, message, nil)
			check(err)
		}
	}
}

func processorTime() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
