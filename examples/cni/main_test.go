// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/isolated"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// program is the example program.
var program exetest.Program

func TestMain(m *testing.M) {
	os.Exit(isolated.Run(isolated.Mounts|isolated.Network, func() int { return program.Main(m) }))
}

const config = `{"name":"example","cniVersion":"1.0.0","plugins":[
	{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"subnet":"10.214.0.0/24","routes":[{"dst":"0.0.0.0/0"}]}}
]}`

func TestIntegrationAttach(t *testing.T) {
	plugins := lab.PluginDir(t, "ptp", "host-local")
	d := exetest.NewDir(t)
	state := filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(state, "netns"), unix.MNT_DETACH) })
	d.Write("conf/10-example.conflist", fmt.Sprintf(config, filepath.Join(d.Path, "leases")))
	p := program.Start(t, "-conf", filepath.Join(d.Path, "conf"), "-plugins", plugins, "-state", state, "ip", "-brief", "address")
	require.Zero(t, p.Wait(30*time.Second), p.Output())
	p.AwaitLine(time.Second, "network namespace "+state+"/netns/example")
	p.AwaitLine(time.Second, "addresses [10.214.0.2]")
	p.AwaitLine(time.Second, "  address 10.214.0.2/24 gateway 10.214.0.1")
	p.AwaitLine(time.Second, "eth0@", "10.214.0.2/24")

	p = program.Start(t, "-conf", d.Path, "-plugins", plugins, "-state", state)
	require.Equal(t, 1, p.Wait(30*time.Second))
	p.AwaitLine(time.Second, "cni: set up network of pod default/example: no CNI network is configured in "+d.Path)
}
