// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cnitest_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/cnitest"
)

func TestMain(m *testing.M) {
	cnitest.Main()
	os.Exit(m.Run())
}

// call executes plugin with the CNI command command and the configuration config, as libcni does.
func call(p *cnitest.Plugins, plugin, command, config string) (stdout, stderr string, err error) {
	cmd := exec.Command(filepath.Join(p.Dir, plugin))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID=id", "CNI_NETNS=/netns", "CNI_IFNAME=eth0", "CNI_ARGS=A=b", "CNI_PATH="+p.Dir)
	cmd.Stdin = strings.NewReader(config)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

func TestDefaultOutput(t *testing.T) {
	p := cnitest.New(t, "a")
	out, _, err := call(p, "a", "ADD", `{"cniVersion":"1.0.0","type":"a"}`)
	require.NoError(t, err)
	require.Contains(t, out, `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/netns"}],"ips":[{"address":"10.`)
	out, _, err = call(p, "a", "ADD", `{"cniVersion":"0.4.0"}`)
	require.NoError(t, err)
	require.Contains(t, out, `{"version":"4","address":"10.`)
	out, _, err = call(p, "a", "ADD", `{"cniVersion":"1.0.0","prevResult":{"x":1}}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"x":1}`, out)
	for _, command := range []string{"DEL", "CHECK", "GC", "STATUS"} {
		out, _, err = call(p, "a", command, `{"cniVersion":"1.1.0"}`)
		require.NoError(t, err)
		require.Empty(t, out)
	}
	out, _, err = call(p, "a", "VERSION", `{}`)
	require.NoError(t, err)
	require.Contains(t, out, `"1.1.0"`)
	require.Equal(t, "a ADD, a ADD, a ADD, a DEL, a CHECK, a GC, a STATUS, a VERSION", p.CallNames())
	require.Equal(t, "a DEL, a GC", p.CallNames("DEL", "GC"))
	got := p.Calls()[0]
	require.Equal(t, cnitest.Call{
		Plugin: "a", Command: "ADD", ContainerID: "id", Netns: "/netns", Interface: "eth0", Args: "A=b", Path: p.Dir, Config: got.Config, PID: got.PID,
	}, got)
	require.Equal(t, `"a"`, got.Field("type"))
	p.ClearCalls()
	require.Empty(t, p.Calls())
}

func TestScriptedAnswers(t *testing.T) {
	p := cnitest.New(t, "a")
	p.Script("a", "ADD", cnitest.Fail(11, "later", "x"), cnitest.Return("ok"), cnitest.Crash(), cnitest.Answer{Stdout: "ab", Repeat: 3, Stderr: "e"})
	out, _, err := call(p, "a", "ADD", "{}")
	require.EqualError(t, err, "exit status 1")
	require.JSONEq(t, `{"code":11,"msg":"later","details":"x"}`, out)
	out, _, err = call(p, "a", "ADD", "{}")
	require.NoError(t, err)
	require.Equal(t, "ok", out)
	_, _, err = call(p, "a", "ADD", "{}")
	require.EqualError(t, err, "signal: killed")
	for range 2 {
		out, stderr, err := call(p, "a", "ADD", "{}")
		require.NoError(t, err, "the last answer is repeated")
		require.Equal(t, "ababab e", out+" "+stderr)
	}
	p.Uninstall("a")
	_, _, err = call(p, "a", "ADD", "{}")
	require.ErrorIs(t, err, os.ErrNotExist)
	p.Install("a")
	_, stderr, err := call(p, "a", "ADD", "no JSON")
	require.EqualError(t, err, "exit status 3")
	require.Contains(t, stderr, "the configuration is no JSON")
}

// A hung plugin and its child exit when their test ends.
func TestHungPluginExitsAfterTheTest(t *testing.T) {
	for _, child := range []cnitest.Child{cnitest.NoChild, cnitest.GroupChild, cnitest.SessionChild} {
		t.Run(string(child), func(t *testing.T) {
			var cmd *exec.Cmd
			var c cnitest.Call
			t.Run("test that runs the plugin", func(t *testing.T) {
				p := cnitest.New(t, "a")
				p.Script("a", "ADD", cnitest.Hang(child))
				cmd = exec.Command(filepath.Join(p.Dir, "a"))
				cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD")
				cmd.Stdin = strings.NewReader("{}")
				require.NoError(t, cmd.Start())
				require.Eventually(t, func() bool { return len(p.Calls()) == 1 }, time.Minute, time.Millisecond)
				c = p.Calls()[0]
				require.NoError(t, syscall.Kill(c.PID, 0))
				require.Equal(t, child != cnitest.NoChild, c.Child != 0)
				if child != cnitest.NoChild {
					group, err := syscall.Getpgid(c.Child)
					require.NoError(t, err)
					require.Equal(t, child == cnitest.SessionChild, group == c.Child)
				}
			})
			require.NoError(t, cmd.Wait())
			if c.Child != 0 {
				require.Eventually(t, func() bool {
					stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Child))
					return err != nil || bytes.Contains(stat, []byte(") Z "))
				}, time.Minute, time.Millisecond)
			}
		})
	}
}

func TestConcurrentCalls(t *testing.T) {
	p := cnitest.New(t, "a")
	p.Script("a", "DEL", cnitest.Return("first"), cnitest.Return("other"))
	var workers sync.WaitGroup
	outs := make([]string, 20)
	for i := range outs {
		workers.Go(func() {
			var err error
			outs[i], _, err = call(p, "a", "DEL", "{}")
			assert.NoError(t, err)
		})
	}
	workers.Wait()
	require.Len(t, p.Calls(), len(outs))
	require.Equal(t, 1, strings.Count(strings.Join(outs, " "), "first"))
}
