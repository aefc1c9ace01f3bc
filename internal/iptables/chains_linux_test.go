// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/iptables"
	"github.com/seed81659283/nodeagent/internal/isolated"
)

// TestMain runs the tests in a network namespace of their own, whose rules they change, and on one processor: the race detector of Go 1.26 sometimes
// crashes when timers of a synctest bubble fire on several ones (golang/go#78156).
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(isolated.Run(isolated.Network, m.Run))
}

// saveRules returns the rules of a table, as one of the programs prints them.
func saveRules(t *testing.T, program, table string) string {
	out, err := exec.CommandContext(t.Context(), program, "-w", "5", "-t", table, "-S").CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// The rules are those of the kubelet, exist once, and are created again after another program has removed them.
func TestIntegrationChainsAreThoseOfAKubelet(t *testing.T) {
	if os.Getenv(isolated.Inside) == "" {
		t.Skip("needs a network namespace, which this process may not create")
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		if out, err := exec.CommandContext(t.Context(), program, "-t", "mangle", "-S").CombinedOutput(); err != nil {
			t.Skipf("needs %s: %v: %s", program, err, out)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	chains := iptables.NewChains(iptables.Options{Period: 50 * time.Millisecond})
	wg.Go(func() { assert.NoError(t, chains.Run(ctx)) })
	const want = `-P INPUT ACCEPT
-P FORWARD ACCEPT
-P OUTPUT ACCEPT
-N KUBE-FIREWALL
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
`
	awaitRules := func() {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.Equal(c, want, saveRules(t, "iptables", "filter"))
			assert.Contains(c, saveRules(t, "iptables", "mangle"), "-N KUBE-IPTABLES-HINT\n")
			assert.Contains(c, saveRules(t, "ip6tables", "mangle"), "-N KUBE-IPTABLES-HINT\n")
			assert.NotContains(c, saveRules(t, "ip6tables", "filter"), "KUBE-FIREWALL")
		}, time.Minute, 10*time.Millisecond)
	}
	awaitRules()
	for _, args := range [][]string{{"-t", "filter", "-F"}, {"-t", "mangle", "-X"}} {
		out, err := exec.CommandContext(t.Context(), "iptables", append([]string{"-w", "5"}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	awaitRules()
}

// fakePrograms records the calls of the programs, and answers with the exit codes and errors of code.
type fakePrograms struct {
	mu    sync.Mutex // guards calls
	calls []string
	code  func(call string) (int, error)
}

func (p *fakePrograms) run(_ context.Context, program string, args ...string) (int, error) {
	call := program + " " + strings.Join(args, " ")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
	return p.code(call)
}

// runMinutes runs chains with the programs for these minutes of virtual time, and returns the log.
func runMinutes(t *testing.T, p *fakePrograms, minutes int) string {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		chains := iptables.NewChains(iptables.Options{Run: p.run, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		wg.Go(func() { assert.NoError(t, chains.Run(ctx)) })
		time.Sleep(time.Duration(minutes)*time.Minute - time.Second)
		cancel()
		wg.Wait()
		require.Error(t, chains.Run(t.Context()), "a second run")
	})
	return log.String()
}

// Rules that exist are checked once a minute, and not changed.
func TestChainsThatExistAreNotChanged(t *testing.T) {
	p := &fakePrograms{code: func(string) (int, error) { return 0, nil }}
	assert.Empty(t, runMinutes(t, p, 3))
	assert.Len(t, p.calls, 3*6)
	for _, call := range p.calls {
		assert.Regexp(t, "^ip6?tables -w 5 -t (mangle|filter) -[SC] ", call)
	}
}

// A host without iptables, or with rules that cannot be changed, is logged once, and again after a success.
func TestFailuresAreLoggedOnce(t *testing.T) {
	missing := &fakePrograms{code: func(string) (int, error) { return 0, errors.New("executable file not found") }}
	log := runMinutes(t, missing, 5)
	assert.Equal(t, 2, strings.Count(log, "are missing"), log)
	assert.Len(t, missing.calls, 5*2, "a program that does not run is called once a minute")

	refusals := 0
	refusing := &fakePrograms{}
	refusing.code = func(call string) (int, error) {
		if strings.Contains(call, " -C ") {
			return 1, nil
		}
		if strings.Contains(call, " -A ") && refusals < 2 {
			refusals++
			return 4, nil
		}
		return 0, nil
	}
	log = runMinutes(t, refusing, 4)
	assert.Equal(t, 1, strings.Count(log, "are missing"), log)
	assert.Contains(t, log, "exit code 4")
	assert.Equal(t, 1, strings.Count(log, "chains of a kubelet exist"), log)
}
