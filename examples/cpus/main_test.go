// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/podresources"
)

// assigned has the exclusive CPUs of containers, by the name of the pod, and those of pods by the name and "/".
type assigned map[string][]int64

func (a assigned) CPUs(uid, _ string) []int64 { return a[uid] }

func (a assigned) PodCPUs(uid string) []int64 { return a[uid+"/"] }

func (a assigned) AllocatableCPUs() []int64 { return a["allocatable"] }

// serve runs a podresources API until the test ends, and returns its socket.
func serve(t *testing.T, cpus assigned) string {
	dir, err := os.MkdirTemp("", "cpus") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	allocator, err := device.New(device.Options{})
	require.NoError(t, err)
	var pods []device.Pod
	for _, name := range []string{"database", "web", "cache"} {
		pods = append(pods, device.Pod{UID: name, Namespace: "default", Name: name, Containers: []device.Container{{Name: "main"}}})
	}
	opts := podresources.Options{
		Socket: filepath.Join(dir, "kubelet.sock"), Devices: allocator, CPUs: cpus, Pods: podresources.PodsFunc(func() (active, inactive []device.Pod) { return pods, nil }),
	}
	server, err := podresources.New(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	require.Eventually(t, func() bool {
		_, err := os.Stat(opts.Socket)
		return err == nil
	}, time.Minute, time.Millisecond)
	return opts.Socket
}

// twoSockets returns a machine with two sockets, each a NUMA node with two cores of two threads.
func twoSockets() fs.FS {
	files := fstest.MapFS{}
	add := func(name string, value any) {
		files["sys/devices/system/"+name] = &fstest.MapFile{Data: fmt.Appendln(nil, value)}
	}
	add("cpu/online", "0-7")
	for cpu := range 8 {
		core := cpu % 4
		add(fmt.Sprintf("cpu/cpu%d/topology/core_id", cpu), core)
		add(fmt.Sprintf("cpu/cpu%d/topology/physical_package_id", cpu), core/2)
		add(fmt.Sprintf("node/node%d/cpu%d/uevent", core/2, cpu), "")
	}
	return files
}

func TestEachCPUHasItsContainer(t *testing.T) {
	socket := serve(t, assigned{"allocatable": {1, 2, 3, 5, 6, 7}, "database": {2, 6, 3}, "web": {5}, "web/": {1, 5}})
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, twoSockets(), socket))
	require.Equal(t, `SOCKET  NODE  CORE  CPU  CONTAINER
0       0     0     0    shared, reserved
0       0     1     1    default/web
1       1     2     2    default/database/main
1       1     3     3    default/database/main
0       0     0     4    shared, reserved
0       0     1     5    default/web/main
1       1     2     6    default/database/main
1       1     3     7    shared
default/database/main has the CPUs 2-3,6 of NUMA node 1; whole cores: 1
default/web/main has the CPUs 5 of NUMA node 0; whole cores: 0
default/web has the CPUs 1 of NUMA node 0; whole cores: 0
`, out.String())
}

func TestPolicyNoneHasNoExclusiveCPUs(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, twoSockets(), serve(t, nil)))
	require.Contains(t, out.String(), "cpuManagerPolicy is none")
	require.Equal(t, 8, strings.Count(out.String(), "shared, reserved"))
}

func TestAgentThatDoesNotRun(t *testing.T) {
	var out strings.Builder
	require.ErrorContains(t, run(t.Context(), &out, twoSockets(), filepath.Join(t.TempDir(), "none.sock")), "get the allocatable CPUs: ")
	require.ErrorContains(t, run(t.Context(), &out, fstest.MapFS{}, ""), "read the topology of the machine: ")
	require.Empty(t, out.String())
}
