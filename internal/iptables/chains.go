// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package iptables maintains the iptables chains that other programs expect of a kubelet (makeIPTablesUtilChains). It knows no pods and no services.
//
//	err := iptables.NewChains(iptables.Options{Logger: logger}).Run(ctx)
//
// The chain KUBE-IPTABLES-HINT shows programs in containers which of the two iptables implementations the host uses. The chain KUBE-FIREWALL drops
// packets to 127.0.0.0/8 from other machines, which kube-proxy lets through. Source: pkg/kubelet/kubelet_network_linux.go.
//
// # Errors
//
// Run logs errors, and retries each minute: hosts may have no iptables. The first failure of a program is logged, and the next one after a success.
//
// Test kit: [Options] has the function that runs the programs.
package iptables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/internal/plugincmd"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Limits of a program.
const (
	runTimeout = 30 * time.Second
	lockWait   = "5"     // seconds for which a program waits for the lock of the rules
	maxOutput  = 4 << 10 // bytes of the output that are kept
)

// DefaultPeriod is the time between two checks of the rules.
const DefaultPeriod = time.Minute

// RunFunc runs a program and returns its exit code. err is not nil if the program could not run; an error of the program is only in code.
type RunFunc func(ctx context.Context, program string, args ...string) (code int, err error)

// Options configures [Chains]. The zero value is right for production.
type Options struct {
	Run    RunFunc       // nil: runs the program of the host
	Period time.Duration // zero: DefaultPeriod
	Logger *slog.Logger  // nil discards
}

// Chains maintains the chains of a kubelet. Create them with [NewChains].
type Chains struct {
	opts   Options
	failed map[string]bool // programs whose failure was logged
	guard  runonce.Guard
}

// NewChains returns chains that do not exist before Run.
func NewChains(opts Options) *Chains {
	if opts.Run == nil {
		opts.Run = runProgram
	}
	opts.Period, opts.Logger = cmp.Or(opts.Period, DefaultPeriod), cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	c := &Chains{opts: opts, failed: map[string]bool{}}
	c.guard.Require("iptables.Chains", opts.Logger, nil)
	return c
}

// Run creates missing chains and rules now and every Options.Period, until ctx ends. The chains stay. It returns an error if it was called before.
func (c *Chains) Run(ctx context.Context) error {
	if err := c.guard.Begin(); err != nil {
		return fmt.Errorf("iptables.Chains: %w", err)
	}
	defer c.guard.End()
	for {
		for _, program := range []string{"iptables", "ip6tables"} {
			c.logResult(program, c.ensure(ctx, program))
		}
		if sleep.For(ctx, c.opts.Period) != nil {
			return nil
		}
	}
}

// logResult logs the result of a pass if it is another than that of the previous pass.
func (c *Chains) logResult(program string, err error) {
	switch failed := c.failed[program]; {
	case err != nil && !failed:
		c.opts.Logger.Warn("the iptables chains of a kubelet are missing", "program", program, "error", err)
	case err == nil && failed:
		c.opts.Logger.Info("the iptables chains of a kubelet exist", "program", program)
	}
	c.failed[program] = err != nil
}

// ensure creates missing chains and rules with a program. IPv6 has no KUBE-FIREWALL: kube-proxy lets no packets to ::1 through.
func (c *Chains) ensure(ctx context.Context, program string) error {
	if err := c.ensureChain(ctx, program, "mangle", "KUBE-IPTABLES-HINT"); err != nil || program == "ip6tables" {
		return err
	}
	const firewall = "KUBE-FIREWALL"
	if err := c.ensureChain(ctx, program, "filter", firewall); err != nil {
		return err
	}
	for _, chain := range []string{"OUTPUT", "INPUT"} {
		if err := c.ensureRule(ctx, program, "-I", chain, "-j", firewall); err != nil {
			return err
		}
	}
	return c.ensureRule(ctx, program, "-A", firewall, "-m", "comment", "--comment", "block incoming localnet connections",
		"--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8", "-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP")
}

// ensureChain creates a chain, unless it exists.
func (c *Chains) ensureChain(ctx context.Context, program, table, chain string) error {
	code, err := c.run(ctx, program, table, "-S", chain)
	if err != nil || code == 0 {
		return err
	}
	return c.runToSuccess(ctx, program, table, "-N", chain)
}

// ensureRule adds a rule to a chain of table filter, unless it exists. add is -I for the first rule, or -A for the last one.
func (c *Chains) ensureRule(ctx context.Context, program, add, chain string, rule ...string) error {
	code, err := c.run(ctx, program, "filter", append([]string{"-C", chain}, rule...)...)
	if err != nil || code == 0 {
		return err
	}
	return c.runToSuccess(ctx, program, "filter", append([]string{add, chain}, rule...)...)
}

// runToSuccess runs a program, and returns an error if it exits with another code than zero.
func (c *Chains) runToSuccess(ctx context.Context, program, table string, args ...string) error {
	code, err := c.run(ctx, program, table, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s -t %s %s: exit code %d", program, table, strings.Join(args, " "), code)
	}
	return err
}

// run runs a program for at most runTimeout.
func (c *Chains) run(ctx context.Context, program, table string, args ...string) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	return c.opts.Run(ctx, program, append([]string{"-w", lockWait, "-t", table}, args...)...)
}

// runProgram is the default of Options.Run.
func runProgram(ctx context.Context, program string, args ...string) (code int, err error) {
	out := &plugincmd.Output{Max: maxOutput, Drop: true}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	err = plugincmd.Run(cmd, false)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		err = fmt.Errorf("run %s: %w", program, err)
	}
	return 0, err
}
