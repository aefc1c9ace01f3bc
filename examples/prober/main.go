// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Prober runs readiness probes against servers, as a kubelet does for containers, and prints a line when a result changes. It
// uses package probe only, and no containers:
//
//	prober -period 2s http://localhost:8080/healthz tcp://[::1]:5432 "exec:test -e /run/ready"
//
// With -store it starts with the results of its previous run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

func main() {
	var spec probe.Spec
	flag.DurationVar(&spec.Period, "period", 10*time.Second, "time between probes of a server")
	flag.DurationVar(&spec.Timeout, "timeout", time.Second, "how long a server may take")
	flag.IntVar(&spec.FailureThreshold, "failures", 3, "failures in a row that count")
	flag.IntVar(&spec.SuccessThreshold, "successes", 1, "successes in a row that count")
	store := flag.String("store", "", "file that keeps the results (none: in memory)")
	verbose := flag.Bool("v", false, "print every result")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := runProbes(ctx, flag.Args(), spec, *store, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "prober:", err)
		os.Exit(1)
	}
}

func runProbes(ctx context.Context, servers []string, spec probe.Spec, store string, verbose bool) error {
	if len(servers) == 0 {
		return errors.New("no server: give http://host:port/path, tcp://host:port or exec:command")
	}
	hooks := probe.Hooks{
		ValueChanged: func(k probe.Key, v probe.Value) { printResult(k, v.Outcome.String(), "") },
		StoreFailed:  func(err error) { fmt.Fprintln(os.Stderr, "prober:", err) },
	}
	if verbose {
		hooks.ProbeFinished = func(k probe.Key, r probe.Result, err error, took time.Duration) {
			text := r.Output
			if err != nil {
				text = err.Error()
			}
			printResult(k, r.Outcome.String(), fmt.Sprintf("in %s: %.200q", took.Round(time.Microsecond), text))
		}
	}
	pool := httpprobe.NewPool(httpprobe.PoolOptions{})
	defer pool.Close()
	var targets []probe.Target
	for _, server := range servers {
		prober, err := parseServer(server, pool)
		if err != nil {
			return fmt.Errorf("server %q: %w", server, err)
		}
		// A server stands for a container that always runs, with the server as its name.
		targets = append(targets, probe.Target{
			Key:         probe.Key{PodUID: "prober", Container: server, Kind: probe.Readiness},
			ContainerID: server, Running: true, Started: true, Spec: spec, Prober: prober,
		})
	}
	set := probe.NewSet(probe.Options{Store: store, Hooks: hooks})
	if err := set.Sync(targets); err != nil {
		return err
	}
	return set.Run(ctx)
}

// parseServer returns the prober for a server that is given on the command line.
func parseServer(server string, pool *httpprobe.Pool) (probe.Prober, error) {
	if command, ok := strings.CutPrefix(server, "exec:"); ok {
		return probe.NewExec(probe.ExecFunc(execCommand), probe.ExecConfig{ContainerID: "host", Command: []string{"/bin/sh", "-c", command}})
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return nil, errors.New("it has no port")
	}
	switch u.Scheme {
	case "http", "https":
		return httpprobe.New(httpprobe.Config{Scheme: u.Scheme, Host: u.Hostname(), Port: port, Path: u.RequestURI(), Pool: pool})
	case "tcp":
		return probe.NewTCP(probe.TCPConfig{Host: u.Hostname(), Port: port})
	}
	return nil, fmt.Errorf("%q is none of http, https, tcp and exec", u.Scheme)
}

// execCommand runs a command on this machine.
func execCommand(ctx context.Context, _ string, command []string) (output []byte, exitCode int, err error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = time.Second // for children that keep the output open
	output, err = cmd.CombinedOutput()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) && ended.Exited() {
		return output, ended.ExitCode(), nil
	}
	return output, 0, err
}

func printResult(k probe.Key, what, more string) {
	fmt.Println(strings.TrimSpace(fmt.Sprintf("%s %s %s %s", time.Now().Format(time.TimeOnly), k.Container, what, more)))
}
