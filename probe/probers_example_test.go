// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/seed81659283/nodeagent/probe"
)

func ExampleNewTCP() {
	_, err := probe.NewTCP(probe.TCPConfig{Host: "10.0.0.1", Port: 70000})
	fmt.Println(err)
	// Output: field Port: 70000 is not from 1 to 65535
}

func ExampleNewExec() {
	run := probe.ExecFunc(func(_ context.Context, _ string, command []string) ([]byte, int, error) {
		return []byte("no such file: " + command[1]), 1, nil
	})
	p, err := probe.NewExec(run, probe.ExecConfig{ContainerID: "4f1d", Command: []string{"cat", "/tmp/healthy"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := p.Probe(context.Background())
	fmt.Println(r.Outcome, r.Output, err)
	// Output: failure no such file: /tmp/healthy <nil>
}

func BenchmarkProbers(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	tcp, _ := probe.NewTCP(probe.TCPConfig{Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port})
	exec, _ := probe.NewExec(probe.ExecFunc(func(context.Context, string, []string) ([]byte, int, error) { return nil, 0, nil }),
		probe.ExecConfig{ContainerID: "c", Command: []string{"true"}})
	for name, p := range map[string]probe.Prober{"tcp": tcp, "exec": exec} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, err := p.Probe(b.Context()); err != nil || r.Outcome != probe.Success {
					b.Fatal(r, err)
				}
			}
		})
	}
}
