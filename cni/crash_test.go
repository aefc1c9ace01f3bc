// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/internal/cnitest"
)

// agentEnv is the environment variable that makes the test binary an agent, with its node as JSON.
const agentEnv = "CNI_TEST_AGENT"

// agent has the paths of the node of an agent process.
type agent struct{ Dir, Conf, Netns, Plugins string }

// runAgent runs the agent process of a crash test, if this process is one: it sets up a sandbox and tears it down. The test kills
// the process at some point.
func runAgent() {
	text, ok := os.LookupEnv(agentEnv)
	if !ok {
		return
	}
	var a agent
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		panic(err)
	}
	p, err := cni.Open(a.Dir, cni.Options{ConfDir: a.Conf, NetnsDir: a.Netns, PluginDirs: []string{a.Plugins}})
	if err != nil {
		panic(err)
	}
	if _, err := p.Setup(context.Background(), pod("1")); err != nil {
		panic(err)
	}
	if err := p.Teardown(context.Background(), "1"); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// An agent that is killed at any plugin call leaves only records and namespaces that the restarted agent finds.
func TestIntegrationRestartedAgentTearsDownAfterKill(t *testing.T) {
	for step, call := range [][2]string{{"a", "ADD"}, {"b", "ADD"}, {"c", "ADD"}, {"c", "DEL"}, {"b", "DEL"}, {"a", "DEL"}} {
		t.Run(call[1]+" of "+call[0], func(t *testing.T) {
			n := newNode(t)
			n.plugins.Script(call[0], call[1], cnitest.Hang(cnitest.NoChild), cnitest.Succeed())
			text, err := json.Marshal(agent{Dir: n.dir, Conf: n.opts.ConfDir, Netns: n.opts.NetnsDir, Plugins: n.plugins.Dir})
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), agentEnv+"="+string(text))
			require.NoError(t, cmd.Start())
			deadline := time.Now().Add(time.Minute)
			for len(n.plugins.Calls("ADD", "DEL")) <= step {
				require.True(t, time.Now().Before(deadline), "the agent must call %s %s", call[1], call[0])
				time.Sleep(time.Millisecond)
			}
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			require.NotEmpty(t, n.files()["record"])

			p := n.open()
			require.NoError(t, os.RemoveAll(filepath.Join(n.opts.ConfDir, "10-net.conflist")))
			require.NoError(t, p.Retain(t.Context(), nil))
			n.requireNoFiles()
			said := n.plugins.Calls("DEL")
			require.Equal(t, "a DEL", said[len(said)-1].String())
		})
	}
}
