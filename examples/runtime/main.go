// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Runtime is a container runtime without containers: it serves package cri/process, whose containers are processes of this
// machine, to whatever speaks CRI, such as crictl and the kubelet. When it is stopped the processes go on, and the next
// start finds them again:
//
//	runtime -state /tmp/node -socket /tmp/node.sock &
//	crictl --runtime-endpoint unix:///tmp/node.sock pods
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/process"
)

func main() {
	process.Main() // returns at once unless this program was started as the keeper of a process
	state := flag.String("state", "/var/lib/nodeagent/processes", "directory of what runs")
	socket := flag.String("socket", "/run/nodeagent.sock", "where to serve it, to the user of this program alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, *state, *socket); err != nil {
		fmt.Fprintln(os.Stderr, "runtime:", err)
		os.Exit(1)
	}
}

// serve answers calls until ctx ends.
func serve(ctx context.Context, state, socket string) error {
	runtime, err := process.Open(state, process.Options{Logger: slog.Default()}) // one program at a time has the directory
	if err != nil {
		return err
	}
	defer runtime.Close()
	// A program that was killed leaves its socket behind.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return errors.Join(err, l.Close())
	}
	return criserver.New(runtime, criserver.Options{}).Serve(ctx, l)
}
