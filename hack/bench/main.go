// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed81659283/nodeagent/hack/bench/internal/api"
	"github.com/seed81659283/nodeagent/hack/bench/internal/cluster"
	"github.com/seed81659283/nodeagent/hack/bench/internal/nodes"
	"github.com/seed81659283/nodeagent/hack/bench/internal/static"
)

const usage = `usage: bench static|cluster|api|nodes [FLAG]...

static   an agent that runs static pods, beside bare CRI calls
cluster  an agent as a node of a control plane
api      the HTTP API of an agent
nodes    simulated nodes of a control plane

bench COMMAND -h lists the flags of a command.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run executes the benchmark that args[0] names.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	switch command, flags := args[0], args[1:]; command {
	case "static":
		return static.Run(ctx, flags, out)
	case "cluster":
		return cluster.Run(ctx, flags, out)
	case "api":
		return api.Run(ctx, flags, out)
	case "nodes":
		return nodes.Run(ctx, flags, out)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(out, usage)
		return nil
	default:
		return fmt.Errorf("unknown command %q\n%s", command, usage)
	}
}
