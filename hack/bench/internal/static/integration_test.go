// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// A run on a real containerd yields all figures of the floor, and leaves no containers, sandboxes or files.
func TestIntegrationFloor(t *testing.T) {
	l := lab.StartPrivate(t)
	opts := options{
		hurry:    true, // concurrent tests need the page cache and keep the machine busy
		endpoint: l.Endpoint(), image: lab.BusyboxImage, pods: []int{2}, parallel: []int{1, 0}, repeat: 1, kills: 1,
		volumes: 3, idle: time.Second, limit: 2 * time.Minute, trace: true, json: filepath.Join(t.TempDir(), "out.json"),
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var out strings.Builder
	require.NoError(t, measure(ctx, opts, &out), out.String())
	text, err := os.ReadFile(opts.json)
	require.NoError(t, err)
	var record struct{ Samples []sample }
	require.NoError(t, json.Unmarshal(text, &record))
	require.Len(t, record.Samples, 2)
	for i, s := range record.Samples {
		assert.Equal(t, i+1, s.Parallel)
		assert.LessOrEqual(t, s.Values[firstSeconds][0], s.Values[startSeconds][0])
		require.NotEmpty(t, s.Phases)
		assert.Equal(t, "starting", s.Phases[0].Name)
		assert.Equal(t, []int{2, 2, 2}, []int{s.Phases[0].Calls[0].Count, s.Phases[0].Calls[1].Count, s.Phases[0].Calls[2].Count},
			"sandbox, create and start of two pods, without the harness's own list calls")
		for _, m := range []metric{startSeconds, goneSeconds, stoppedSeconds, removedSeconds} {
			require.Len(t, s.Values[m], 1, m)
			assert.Positive(t, s.Values[m][0], m)
		}
	}
	first := record.Samples[0].Values
	assert.Len(t, first[replaceSeconds], 1)
	assert.Len(t, first[runtimeMillicores], 1, "the process of the runtime is found by its socket")
	assert.Len(t, first[createStartSeconds], 1)

	require.Eventually(t, func() bool { // the last shim exits a little later
		left, err := l.Leftovers(ctx)
		return err == nil && len(left) == 0
	}, time.Minute, 50*time.Millisecond)
}

// The problems of each broken agent are reported separately with its output, and the run continues.
func TestIntegrationBrokenAgents(t *testing.T) {
	l := lab.StartPrivate(t)
	dies, _ := scriptAgent(t, `echo no such flag >&2; exit 3`)
	dies.Name = "dies"
	lazy, _ := scriptAgent(t, `trap 'exit 0' TERM; sleep 100 & wait`)
	lazy.Name = "lazy"
	opts := options{
		hurry:    true, // concurrent tests need the page cache and keep the machine busy
		endpoint: l.Endpoint(), image: lab.BusyboxImage, agents: []agent{dies, lazy}, pods: []int{2}, repeat: 1,
		idle: time.Second, limit: 5 * time.Second, stopLimit: time.Minute,
	}
	var out strings.Builder
	err := measure(t.Context(), opts, &out)
	assert.EqualError(t, err, "2 problems, see above")
	assert.Contains(t, out.String(), "0 of 2 run: agent ended by itself (exit status 3); the agent's last output:\nno such flag")
	assert.Contains(t, out.String(), "0 of 2 run: not within the deadline")
}

// A runtime with other pods is refused. Pods of an earlier run are removed only with -clean.
func TestIntegrationPodsOfOthers(t *testing.T) {
	l := lab.StartPrivate(t)
	runtime, _, err := cri.Dial(t.Context(), l.Endpoint())
	require.NoError(t, err)
	defer runtime.Close()
	p := newPods(namespacePrefix+"earlier-1", lab.BusyboxImage, "", 1, limits{})[0]
	logs := t.TempDir()
	require.NoError(t, os.MkdirAll(p.sandboxConfig(logs).GetLogDirectory(), 0o755))
	_, err = runtime.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: p.sandboxConfig(logs)})
	require.NoError(t, err)

	assert.ErrorContains(t, checkEmpty(t.Context(), runtime, options{}), "1 pods of others: idle figures")
	assert.NoError(t, checkEmpty(t.Context(), runtime, options{force: true}))
	assert.ErrorContains(t, checkEmpty(t.Context(), runtime, options{force: true, kubelet: true}), "a kubelet would stop them")
	assert.NoError(t, checkEmpty(t.Context(), runtime, options{kubelet: true, clean: true}))
	assert.NoError(t, checkEmpty(t.Context(), runtime, options{}), "the pods of the earlier run are removed")
}

func TestIntegrationWrongSocket(t *testing.T) {
	start := time.Now()
	err := measure(t.Context(), options{endpoint: "unix:///no/such.sock", image: "x"}, &strings.Builder{})
	assert.ErrorContains(t, err, "/no/such.sock")
	assert.Less(t, time.Since(start), time.Minute)

	l := lab.Start(t)
	err = measure(t.Context(), options{endpoint: l.Endpoint(), image: "no.such/image:1"}, &strings.Builder{})
	assert.ErrorContains(t, err, "no.such/image:1: the runtime does not have it")
}
