// An application on go-amqp, which has no reconnect of its own: the application tries the members in turn,
// and follows their redirects.  It sends again, in order, what had no outcome at a loss.
//
//	client send    MEMBERS QUEUE PRODUCER RATE WINDOW
//	client receive MEMBERS QUEUE
//
// A user, a password or token, and the SASL mechanism, PLAIN or XOAUTH2, come in the environment: CLIENT_USER,
// CLIENT_PASSWORD, CLIENT_MECHANISM.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	attemptTimeout = 2 * time.Second
	pause          = 50 * time.Millisecond
	credit         = 100
	// A token does not fit into the 512 bytes of a frame before the Open, which go-amqp keeps otherwise.
	saslFrameSize = 16 * 1024
)

func main() {
	role, queue := os.Args[1], os.Args[3]
	members := &members{all: strings.Split(os.Args[2], ",")}
	stopping, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var use func(*amqp.Session) error
	if role == "send" {
		s := &sending{queue: queue, producer: os.Args[4], window: number(6), stopping: stopping}
		s.period = time.Second / time.Duration(number(5))
		use = s.run
	} else {
		r := &receiving{queue: queue, stopping: stopping}
		use = r.run
	}
	for {
		err := members.visit(use)
		if err == nil {
			return
		}
		log.Print(err)
	}
}

// members are the candidates, and the one that a redirect named.
type members struct {
	all      []string
	turn     int
	redirect string
}

// visit uses one connection to one member, and learns from its end where to go next.
func (m *members) visit(use func(*amqp.Session) error) error {
	member := m.redirect
	if m.redirect = ""; member == "" {
		member = m.all[m.turn%len(m.all)]
		m.turn++
		time.Sleep(pause)
	}
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	connection, err := amqp.Dial(ctx, "amqp://"+member, &amqp.ConnOptions{SASLType: login()})
	if err == nil {
		defer connection.Close()
		var session *amqp.Session
		if session, err = connection.NewSession(ctx, nil); err == nil {
			say("connected %s", member)
			err = use(session)
		}
	}
	m.follow(err)
	return err
}

func login() amqp.SASLType {
	user, password := os.Getenv("CLIENT_USER"), os.Getenv("CLIENT_PASSWORD")
	switch os.Getenv("CLIENT_MECHANISM") {
	case "XOAUTH2":
		return amqp.SASLTypeXOAUTH2(user, password, saslFrameSize)
	case "PLAIN":
		return amqp.SASLTypePlain(user, password)
	default:
		return amqp.SASLTypeAnonymous()
	}
}

func (m *members) follow(err error) {
	var closed *amqp.ConnError
	if !errors.As(err, &closed) || closed.RemoteErr == nil {
		return
	}
	if closed.RemoteErr.Condition == "amqp:connection:redirect" {
		m.redirect = fmt.Sprintf("%v:%v", closed.RemoteErr.Info["network-host"], closed.RemoteErr.Info["port"])
		say("redirected %s", m.redirect)
	}
}

type sending struct {
	queue, producer string
	period          time.Duration
	window          int
	stopping        context.Context
	next            int
	// Those without an outcome, in order.
	pending []int
}

// receipt is a message on its way over one connection.
type receipt struct {
	number int
	amqp.SendReceipt
}

// run sends over one connection until it is lost (an error) or all is settled (nil).
func (s *sending) run(session *amqp.Session) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sender, err := session.NewSender(ctx, s.queue, nil)
	if err != nil {
		return err
	}
	again := s.pending
	receipts, outcomes := make(chan receipt, s.window), make(chan int)
	failures := make(chan error, 1)
	go func() { failures <- wait(ctx, receipts, outcomes) }()
	timer := time.NewTicker(s.period)
	defer timer.Stop()
	for {
		stopped := s.stopping.Err() != nil
		if stopped && len(s.pending) == 0 {
			return nil
		}
		var tick <-chan time.Time
		if len(again) > 0 || !stopped && len(s.pending) < s.window {
			tick = timer.C
		}
		select {
		case <-outcomes:
			s.pending = s.pending[1:]
		case err := <-failures:
			return err
		case <-tick:
			if len(again) == 0 {
				again = []int{s.next}
				s.pending = append(s.pending, s.next)
				say("sent %d", s.next)
				s.next++
			}
			sent, err := sender.SendWithReceipt(ctx, s.message(again[0]), nil)
			if err != nil {
				return err
			}
			receipts <- receipt{again[0], sent}
			again = again[1:]
		case <-s.poll(stopped):
		}
	}
}

// poll wakes the loop when the input ends, which counts once.
func (s *sending) poll(stopped bool) <-chan struct{} {
	if stopped {
		return nil
	}
	return s.stopping.Done()
}

func (s *sending) message(number int) *amqp.Message {
	filling := fmt.Sprintf("%x.", number)
	return &amqp.Message{
		Header:                &amqp.MessageHeader{Durable: true},
		ApplicationProperties: map[string]any{"_AMQ_DUPL_ID": fmt.Sprintf("%s-%d", s.producer, number)},
		Value:                 fmt.Sprintf("%s %d %d %s", s.producer, number, len(filling), filling),
	}
}

// wait prints the outcomes in the order of the messages.
func wait(ctx context.Context, receipts <-chan receipt, outcomes chan<- int) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case each := <-receipts:
			state, err := each.Wait(ctx)
			if err != nil {
				return err
			}
			if _, accepted := state.(*amqp.StateAccepted); accepted {
				say("accepted %d", each.number)
			} else {
				say("refused %d", each.number)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case outcomes <- each.number:
			}
		}
	}
}

type receiving struct {
	queue    string
	stopping context.Context
	link     int
}

func (r *receiving) run(session *amqp.Session) error {
	receiver, err := session.NewReceiver(context.Background(), r.queue, &amqp.ReceiverOptions{Credit: credit})
	if err != nil {
		return err
	}
	r.link++
	for {
		message, err := receiver.Receive(r.stopping, nil)
		if r.stopping.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		count := uint32(0)
		if message.Header != nil {
			count = message.Header.DeliveryCount
		}
		say("received %d %d %v", r.link, count, message.Value)
		if err := receiver.AcceptMessage(context.Background(), message); err != nil {
			return err
		}
	}
}

func number(position int) int {
	value, err := strconv.Atoi(os.Args[position])
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func say(format string, facts ...any) {
	fmt.Printf(format+"\n", facts...)
}
