// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/internal/cnitest"
)

// walk is a random-operations test: sandboxes are set up and torn down, plugins fail, configurations change, agents restart
// and machines reboot.
type walk struct {
	*node
	rng     *rand.Rand
	pods    *cni.Pods
	live    map[string]bool // sandboxes whose set-up has succeeded, and whose teardown has not
	version int             // of the configuration
	next    int             // number of the next sandbox
}

func TestIntegrationRandomOperations(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &walk{node: newNode(t), rng: rand.New(rand.NewPCG(seed, 1)), live: map[string]bool{}}
			w.configure()
			w.pods = w.open()
			for range 40 {
				w.step()
			}
			w.end()
		})
	}
}

// configure writes a random network configuration that differs from all previous ones.
func (w *walk) configure() {
	w.version++
	name := []string{"net", "other"}[w.rng.IntN(2)]
	version := []string{"0.4.0", "1.0.0", "1.1.0"}[w.rng.IntN(3)]
	var plugins []string
	for _, p := range []string{"a", "b", "c"}[w.rng.IntN(3):] {
		plugins = append(plugins, fmt.Sprintf(`{"type":%q,"v":%d}`, p, w.version))
	}
	w.write("10-net.conflist", list(name, version, plugins...))
}

// step runs a random operation, ignores its error, and checks that each set-up sandbox can be inspected.
func (w *walk) step() {
	ctx := w.t.Context()
	switch w.rng.IntN(12) {
	case 0, 1, 2, 3:
		w.next++
		id := fmt.Sprint(w.next)
		if _, err := w.pods.Setup(ctx, pod(id)); err == nil {
			w.live[id] = true
		}
	case 4, 5:
		id := fmt.Sprint(w.rng.IntN(w.next + 1))
		if w.pods.Teardown(ctx, id) == nil {
			delete(w.live, id)
		}
	case 6:
		_ = w.pods.Retain(ctx, slices.Collect(maps.Keys(w.live)))
	case 7:
		w.configure()
	case 8, 9:
		w.fault()
	case 10:
		require.NoError(w.t, w.pods.Close())
		if w.rng.IntN(3) == 0 { // reboot of the machine
			unmountAll(w.t, w.opts.NetnsDir)
			require.NoError(w.t, os.RemoveAll(w.opts.NetnsDir))
		}
		w.pods = w.open()
	case 11:
		_ = os.Remove(filepath.Join(w.opts.ConfDir, "10-net.conflist"))
		if w.rng.IntN(2) == 0 {
			_ = w.pods.Retain(ctx, slices.Collect(maps.Keys(w.live)))
		}
		w.configure()
	}
	for id := range w.live {
		_, err := w.pods.Inspect(id)
		require.NoError(w.t, err, "sandbox %s is set up", id)
	}
}

// fault makes the next call of a random plugin fail once.
func (w *walk) fault() {
	plugin := []string{"a", "b", "c"}[w.rng.IntN(3)]
	command := []string{"ADD", "ADD", "DEL", "GC"}[w.rng.IntN(4)]
	answer := []cnitest.Answer{cnitest.Fail(11, "later"), cnitest.Crash(), cnitest.Return("[]"), {Exit: 1}}[w.rng.IntN(4)]
	answers := slices.Repeat([]cnitest.Answer{cnitest.Succeed()}, len(w.callsOf(plugin, command)))
	w.plugins.Script(plugin, command, append(answers, answer, cnitest.Succeed())...)
}

func (w *walk) callsOf(plugin, command string) []cnitest.Call {
	return slices.DeleteFunc(w.plugins.Calls(command), func(c cnitest.Call) bool { return c.Plugin != plugin })
}

// end restarts the agent and checks that Retain removes all files of sandboxes. It also checks that each DEL received the
// configuration of its ADD.
func (w *walk) end() {
	for _, plugin := range []string{"a", "b", "c"} {
		for _, command := range []string{"ADD", "DEL", "GC"} {
			w.plugins.Script(plugin, command)
		}
	}
	require.NoError(w.t, w.pods.Close())
	require.NoError(w.t, w.open().Retain(w.t.Context(), nil))
	w.requireNoFiles()
	added := map[string]string{} // the version of the configuration, by plugin and sandbox
	for _, c := range w.plugins.Calls("ADD", "DEL") {
		key := c.Plugin + " " + c.ContainerID
		if c.Command == "ADD" {
			added[key] = c.Field("v")
			continue
		}
		if v, ok := added[key]; ok {
			require.Equal(w.t, v, c.Field("v"), "DEL of %s", key)
		}
	}
	for key := range added {
		require.True(w.t, slices.ContainsFunc(w.plugins.Calls("DEL"), func(c cnitest.Call) bool {
			return c.Plugin+" "+c.ContainerID == key
		}), "%s must get a DEL", key)
	}
	w.t.Logf("%d sandboxes, %d calls of plugins", w.next, len(w.plugins.Calls()))
}
