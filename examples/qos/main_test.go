// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// program is the example program.
var program exetest.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: guaranteed}
spec:
  containers:
    - {name: main, image: x, resources: {limits: {cpu: 500m, memory: 64Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: burstable}
spec:
  containers:
    - {name: server, image: x, resources: {requests: {cpu: 250m, memory: 4Gi}}}
    - {name: logger, image: x}
---
apiVersion: v1
kind: Pod
metadata: {name: besteffort}
spec:
  containers: [{name: main, image: x}]
`

const table = `POD                 CONTAINER  CLASS       oom_score_adj  cpu.weight  cpu.max       memory.max
default/guaranteed  -          Guaranteed  -              59          50000 100000  67108864
default/guaranteed  main       -           -997           59          50000 100000  67108864
default/burstable   -          Burstable   -              35          max           max
default/burstable   server     -           750            35          max           max
default/burstable   logger     -           999            1           max           max
default/besteffort  -          BestEffort  -              1           max           max
default/besteffort  main       -           1000           1           max           max
`

func TestTable(t *testing.T) {
	m := exetest.NewDir(t)
	m.Write("pods.yaml", manifest)
	p := program.Start(t, "-memory", "16Gi", filepath.Join(m.Path, "pods.yaml"))
	require.Zero(t, p.Wait(20*time.Second))
	require.Equal(t, table, p.Output())
}

func TestBadManifest(t *testing.T) {
	m := exetest.NewDir(t)
	m.Write("bad.yaml", "kind: Pod")
	p := program.Start(t, filepath.Join(m.Path, "bad.yaml"))
	require.Equal(t, 1, p.Wait(20*time.Second))
	p.AwaitLine(time.Second, "qos:", "bad.yaml:1")
}
