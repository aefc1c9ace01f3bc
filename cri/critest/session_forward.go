// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// startEchoServer starts a TCP server on the host that echoes its input. It runs until the end of the test. startEchoServer
// returns its port.
func (t *sessionTestCase) startEchoServer() int32 {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// startForward calls RunPortForward in a goroutine, and returns the client's end of the connection and its error.
func (t *sessionTestCase) startForward(port int32) (client net.Conn, done chan error) {
	client, conn := net.Pipe()
	done = make(chan error, 1)
	go func() { done <- t.run.RunPortForward(t.ctx, t.sandbox, port, conn) }()
	return client, done
}

func forwardData(t *sessionTestCase) {
	client, done := t.startForward(t.startEchoServer())
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	go func() { _, _ = client.Write(data) }()
	back := make([]byte, len(data))
	_, err := io.ReadFull(client, back)
	t.Succeed(err, ruleForward, "read the echoed data")
	t.Hold(bytes.Equal(data, back), ruleForward, "the echoed data differs")
	client.Close()
	select {
	case <-done:
	case <-time.After(waitTimeout):
		t.Hold(false, ruleForward, "RunPortForward does not return after its client has disconnected")
	}
}

func forwardMany(t *sessionTestCase) {
	port := t.startEchoServer()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			client, done := t.startForward(port)
			for j := range 5 {
				line := fmt.Sprintln("line", i, j)
				_, err := io.WriteString(client, line)
				back := make([]byte, len(line))
				if err == nil {
					_, err = io.ReadFull(client, back)
				}
				if err != nil || string(back) != line {
					t.Errorf("connection %d: %q came back as %q: %v\n\tbroken: %q", i, line, back, err, ruleForward)
				}
			}
			client.Close()
			<-done
		})
	}
	wg.Wait()
}

func forwardRefused(t *sessionTestCase) {
	const port = 1 // reserved port that no program listens on
	client, done := t.startForward(port)
	_, err := client.Read(make([]byte, 1))
	t.Hold(err != nil, ruleForwardEnd, "a connection to a port without a listener yields data")
	t.Hold(<-done != nil, ruleForward, "RunPortForward to a port without a listener succeeds")
	client, conn := net.Pipe()
	err = t.run.RunPortForward(t.ctx, unknownID, port, conn)
	t.Hold(errors.Is(err, cri.ErrNotFound), ruleNotFound, "RunPortForward to an unknown sandbox: %v", err)
	_, err = client.Read(make([]byte, 1))
	t.Hold(err != nil, ruleForwardEnd, "the connection is open after an error")
}
