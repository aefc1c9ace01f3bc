// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/internal/cnitest"
)

// newScripted returns Plugins whose plugins run scripts, and the scripts.
func newScripted(t *testing.T, timeouts cni.Timeouts) (*cni.Plugins, *cnitest.Plugins) {
	p := cnitest.New(t, "a", "b", "c")
	return cni.NewPlugins(cni.PluginOptions{Dirs: []string{p.Dir}, CacheDir: t.TempDir(), Timeouts: timeouts}), p
}

var attachment = cni.Attachment{ContainerID: "id", Netns: "/run/netns/id", Interface: "eth0", Args: [][2]string{{"K", "v"}}}

func TestAddAndDel(t *testing.T) {
	run, plugins := newScripted(t, cni.Timeouts{})
	n := network(t, "net", "1.0.0", plugin("a"), plugin("b"), plugin("c"))
	r, err := run.Add(t.Context(), n, attachment)
	require.NoError(t, err)
	require.Len(t, r.IPs, 1)
	require.Equal(t, []cni.Interface{{Name: "eth0", Sandbox: "/run/netns/id"}}, r.Interfaces)
	require.NoError(t, run.Check(t.Context(), n, attachment))
	require.NoError(t, run.Del(t.Context(), n, attachment))
	require.Equal(t, "a ADD, b ADD, c ADD, a CHECK, b CHECK, c CHECK, c DEL, b DEL, a DEL", plugins.CallNames())
	for i, c := range plugins.Calls() {
		assert.Equal(t, "id", c.ContainerID)
		assert.Equal(t, "/run/netns/id", c.Netns)
		assert.Equal(t, "eth0", c.Interface)
		assert.Equal(t, "K=v", c.Args)
		assert.Equal(t, plugins.Dir, c.Path)
		assert.Equal(t, `"net"`, c.Field("name"))
		assert.Equal(t, `"1.0.0"`, c.Field("cniVersion"))
		assert.Equal(t, i == 0, c.Field("prevResult") == "", c.String())
	}
	plugins.ClearCalls()
	require.NoError(t, run.Del(t.Context(), n, attachment), "again")
	require.Equal(t, "c DEL, b DEL, a DEL", plugins.CallNames())
	require.Empty(t, plugins.Calls()[0].Field("prevResult"))
}

func TestAddOfOldVersions(t *testing.T) {
	run, plugins := newScripted(t, cni.Timeouts{})
	n := network(t, "net", "0.3.1", plugin("a"))
	_, err := run.Add(t.Context(), n, attachment)
	require.NoError(t, err)
	require.NoError(t, run.Check(t.Context(), n, attachment), "CHECK of a network without support succeeds")
	require.NoError(t, run.Del(t.Context(), n, attachment))
	require.NoError(t, run.Status(t.Context(), n))
	require.Equal(t, "a ADD, a DEL", plugins.CallNames())
	require.Empty(t, plugins.Calls("DEL")[0].Field("prevResult"))

	n = network(t, "net", "", plugin("a"))
	plugins.Script("a", "ADD", cnitest.Return(`{"ip4":{"ip":"10.1.2.3/24","gateway":"10.1.2.1","routes":[{"dst":"0.0.0.0/0"}]}}`))
	r, err := run.Add(t.Context(), n, attachment)
	require.NoError(t, err)
	require.Equal(t, []cni.IP{{Address: netip.MustParsePrefix("10.1.2.3/24"), Gateway: netip.MustParseAddr("10.1.2.1")}}, r.IPs)
	require.Equal(t, netip.MustParsePrefix("0.0.0.0/0"), r.Routes[0].Destination)
	require.NoError(t, run.Check(t.Context(), n, attachment))
	require.NoError(t, run.Del(t.Context(), n, attachment))
}

func TestPluginErrors(t *testing.T) {
	for name, test := range map[string]struct {
		answer cnitest.Answer
		err    string
		code   uint
	}{
		"an error":          {cnitest.Fail(11, "later", "x"), `plugin type="b" failed (add): later; x`, 11},
		"nothing":           {cnitest.Answer{Exit: 1}, `plugin type="b" failed (add): exited with exit status 1 and no error message`, 0},
		"standard error":    {cnitest.Answer{Exit: 1, Stderr: "no disk"}, `exit status 1 and no error message: "no disk"`, 0},
		"garbage":           {cnitest.Answer{Stdout: "password=x", Exit: 1}, "exit status 1, and its output is not a CNI error", 0},
		"a crash":           {cnitest.Crash(), "signal: killed and no error message", 0},
		"garbage, success":  {cnitest.Return("ok"), "result of plugin b: not a JSON object of a result", 0},
		"endless output":    {cnitest.Answer{Stdout: strings.Repeat("x", 1<<16), Repeat: 1 << 10}, "plugin b: output exceeds 1048576 bytes", 0},
		"long error":        {cnitest.Fail(100, strings.Repeat("x", 5000)), strings.Repeat("x", 1024) + "...", 100},
		"null":              {cnitest.Return(`{"cniVersion":"1.0.0","ips":[null]}`), "ips[0] is null", 0},
		"no such interface": {cnitest.Return(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8","interface":1}]}`), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, plugins := newScripted(t, cni.Timeouts{})
			n := network(t, "net", "1.0.0", plugin("a"), plugin("b"), plugin("c"))
			plugins.Script("b", "ADD", test.answer)
			_, err := run.Add(t.Context(), n, attachment)
			if test.err == "" {
				require.ErrorContains(t, err, "ips[0]: interface: number 1 does not exist, there are 0")
				return
			}
			require.ErrorContains(t, err, test.err)
			require.ErrorContains(t, err, `CNI ADD of network "net", interface eth0 of sandbox id: `)
			require.NotContains(t, err.Error(), "password")
			e, ok := errors.AsType[*cni.Error](err)
			require.True(t, ok)
			require.Equal(t, test.code, e.Code)
			require.Equal(t, "a ADD, b ADD", plugins.CallNames(), "plugins after the failed one are not called")
		})
	}
}

// A hung plugin is killed with its children, and a child outside of its process group delays nothing.
func TestHungPluginIsKilledWithItsChildren(t *testing.T) {
	for _, child := range []cnitest.Child{cnitest.NoChild, cnitest.GroupChild, cnitest.SessionChild} {
		t.Run(string(child), func(t *testing.T) {
			t.Parallel()
			run, plugins := newScripted(t, cni.Timeouts{})
			plugins.Script("a", "ADD", cnitest.Hang(child))
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go func() { // after the plugin has started
				for len(plugins.Calls()) == 0 {
					time.Sleep(time.Millisecond)
				}
				cancel(errors.New("the node goes down"))
			}()
			_, err := run.Add(ctx, network(t, "net", "1.0.0", plugin("a")), attachment)
			require.ErrorContains(t, err, "plugin a was killed: the node goes down")
			call := plugins.Calls()[0]
			require.ErrorIs(t, syscall.Kill(call.PID, 0), syscall.ESRCH)
			if child == cnitest.GroupChild {
				awaitExit(t, call.Child)
			}
		})
	}
}

// awaitExit waits until the process pid, which is not a child of this process, has exited.
func awaitExit(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, time.Minute, 10*time.Millisecond)
}

func TestTimeoutOfEachCommand(t *testing.T) {
	run, plugins := newScripted(t, cni.Timeouts{Add: time.Millisecond, Status: time.Millisecond, Version: time.Millisecond})
	plugins.Script("a", "ADD", cnitest.Hang(cnitest.GroupChild))
	plugins.Script("a", "STATUS", cnitest.Hang(cnitest.GroupChild))
	plugins.Script("a", "VERSION", cnitest.Hang(cnitest.GroupChild))
	n := network(t, "net", "1.1.0", plugin("a"))
	_, err := run.Add(t.Context(), n, attachment)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, run.Status(t.Context(), n), context.DeadlineExceeded)
	_, err = run.Versions(t.Context(), "a")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A child process that a plugin starts on purpose, such as a DNS server, continues, even if it keeps the output open.
func TestAddKeepsChildProcessOfPlugin(t *testing.T) {
	run, plugins := newScripted(t, cni.Timeouts{})
	plugins.Script("a", "ADD", cnitest.Answer{Child: cnitest.GroupChild})
	r, err := run.Add(t.Context(), network(t, "net", "1.0.0", plugin("a")), attachment)
	require.NoError(t, err)
	require.Len(t, r.IPs, 1)
	require.NoError(t, syscall.Kill(plugins.Calls()[0].Child, 0))
}

func TestStatusAndVersions(t *testing.T) {
	run, plugins := newScripted(t, cni.Timeouts{})
	n := network(t, "net", "1.1.0", plugin("a"), plugin("b"))
	require.NoError(t, run.Status(t.Context(), n))
	plugins.Script("b", "STATUS", cnitest.Fail(50, "not yet"))
	err := run.Status(t.Context(), n)
	require.EqualError(t, err, `CNI STATUS of network "net": not yet`)
	e, ok := errors.AsType[*cni.Error](err)
	require.True(t, ok)
	require.EqualValues(t, 50, e.Code)
	plugins.Uninstall("b")
	require.ErrorContains(t, run.Status(t.Context(), n), `failed to find plugin "b" in path [`+plugins.Dir+`]`)

	versions, err := run.Versions(t.Context(), "a")
	require.NoError(t, err)
	require.Contains(t, versions, "1.1.0")
	plugins.Script("a", "VERSION", cnitest.Fail(4, "unknown CNI_COMMAND: VERSION"))
	versions, err = run.Versions(t.Context(), "a")
	require.NoError(t, err, "a plugin before CNI 0.2.0 has no VERSION command")
	require.Equal(t, []string{"0.1.0"}, versions)
}

func TestGC(t *testing.T) {
	run, plugins := newScripted(t, cni.Timeouts{})
	n := network(t, "net", "1.1.0", plugin("a"), plugin("b"))
	require.NoError(t, run.GC(t.Context(), n, []cni.Attachment{attachment}))
	require.Equal(t, "a GC, b GC", plugins.CallNames())
	for _, key := range []string{"cni.dev/valid-attachments", "cni.dev/attachments"} {
		require.JSONEq(t, `[{"containerID":"id","ifname":"eth0"}]`, plugins.Calls()[0].Field(key))
	}
	plugins.Script("a", "GC", cnitest.Fail(999, "no"))
	require.ErrorContains(t, run.GC(t.Context(), n, nil), `CNI GC of network "net": failed to GC plugin a: no`)
}

func TestDelSucceedsForMissingAttachment(t *testing.T) {
	const file = "open /run/netns/id: no such file or directory"
	for name, test := range map[string]struct {
		netns  string
		answer cnitest.Answer
		gone   bool
	}{
		"unknown container":       {"/run/netns/id", cnitest.Fail(3, "never heard of it"), true},
		"not found":               {"/run/netns/id", cnitest.Fail(999, "link eth0 not found"), true},
		"no file, no netns":       {"", cnitest.Fail(999, file), true},
		"no file":                 {"/run/netns/id", cnitest.Fail(999, file), false},
		"another error":           {"", cnitest.Fail(11, "later"), false},
		"not found by the plugin": {"", cnitest.Answer{Exit: 127, Stderr: "jq: not found"}, false},
		"a crash":                 {"", cnitest.Crash(), false},
		"success with any output": {"", cnitest.Return("ok"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, plugins := newScripted(t, cni.Timeouts{})
			n, a := network(t, "net", "1.0.0", plugin("a")), attachment
			_, err := run.Add(t.Context(), n, a)
			require.NoError(t, err)
			plugins.Script("a", "DEL", test.answer)
			a.Netns = test.netns
			if err := run.Del(t.Context(), n, a); test.gone {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, `CNI DEL of network "net", interface eth0 of sandbox id: `)
			}
		})
	}
}

// A damaged cached result is ignored.
func TestDamagedCacheIsRemoved(t *testing.T) {
	for name, content := range map[string]string{
		"half":  `{"kind":"cniCacheV1","containerId":"id","resu`,
		"null":  `{"kind":"cniCacheV1","containerId":"id","ifName":"eth0","networkName":"net","result":{"cniVersion":"1.0.0","interfaces":[null],"ips":[null]}}`,
		"large": strings.Repeat(" ", 5<<20),
	} {
		t.Run(name, func(t *testing.T) {
			plugins, dir := cnitest.New(t, "a"), t.TempDir()
			run := cni.NewPlugins(cni.PluginOptions{Dirs: []string{plugins.Dir}, CacheDir: dir})
			n := network(t, "net", "0.4.0", plugin("a"))
			_, err := run.Add(t.Context(), n, attachment)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "results", "net-id-eth0"), []byte(content), 0o600))
			require.NoError(t, run.Del(t.Context(), n, attachment))
			require.Empty(t, plugins.Calls("DEL")[0].Field("prevResult"))
		})
	}
}

// A plugin file that is being written cannot be executed yet, and is retried. The times are virtual.
func TestPluginBeingWrittenIsRetried(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	f, err := os.OpenFile(filepath.Join(dir, "a"), os.O_WRONLY|os.O_CREATE, 0o700)
	require.NoError(t, err)
	defer f.Close()
	synctest.Test(t, func(t *testing.T) {
		began, runs := time.Now(), 0
		run := cni.NewPlugins(cni.PluginOptions{Dirs: []string{dir}, CacheDir: cache, PluginCalled: func(cni.Call) { runs++ }})
		_, err = run.Add(t.Context(), network(t, "net", "1.0.0", plugin("a")), attachment)
		require.ErrorIs(t, err, syscall.ETXTBSY)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Equal(t, 1, runs)
	})
}

func TestInvalidAttachmentsAreRejected(t *testing.T) {
	run, plugins := newScripted(t, cni.Timeouts{})
	n := network(t, "net", "1.0.0", plugin("a"))
	for _, a := range []cni.Attachment{
		{ContainerID: "", Netns: "/x", Interface: "eth0"},
		{ContainerID: "a/b", Netns: "/x", Interface: "eth0"},
		{ContainerID: strings.Repeat("a", 129), Netns: "/x", Interface: "eth0"},
		{ContainerID: "id", Netns: "/x", Interface: "sixteen-letters1"},
		{ContainerID: "id", Netns: "/x", Interface: "a:b"},
	} {
		_, err := run.Add(t.Context(), n, a)
		require.Error(t, err, "%+v", a)
	}
	require.Error(t, run.Del(t.Context(), n, cni.Attachment{ContainerID: "../x", Interface: "eth0"}))
	require.Empty(t, plugins.CallNames())
}
