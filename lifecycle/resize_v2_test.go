// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/qos"
)

// Resized pods have the requested resources in the files of cgroup v2 and in the status, and no container is recreated. The
// agent is killed and restarted in between.
func TestIntegrationResizeV2(t *testing.T) {
	n := newV2Node(t)
	n.start()
	containers := n.listContainers()
	require.Len(t, containers, 4)

	n.grow()
	n.shrink()
	n.requestLimits()
	n.refuse()
	n.failPodWrite()
	n.resizeWhileStopped()

	// A restarted agent makes no changes.
	cgroupFiles := n.cgroupFiles()
	n.kill()
	n.startAgent()
	n.awaitSyncs()
	n.requireActions()
	require.Equal(t, cgroupFiles, n.cgroupFiles())
	require.Equal(t, containers, n.listContainers())
}

// start starts a Burstable pod, a Guaranteed pod, and a pod with pod-level resources.
func (n *v2Node) start() {
	n.setPod("web", "", "main cpu=250m/500m memory=32Mi/64Mi")
	n.setPod("db", "", "main cpu=100m/100m memory=48Mi/48Mi")
	n.setPod("batch", "cpu=300m/1 memory=64Mi/128Mi", "app cpu=100m/200m memory=16Mi/32Mi", "helper")
	n.startAgent()
	n.await(n.statusLines, `
		batch Running, app: ready, helper: ready, cpu=100m/200m memory=16Mi/32Mi
		db    Running, main: ready, cpu=100m/100m memory=48Mi/48Mi
		web   Running, main: ready, cpu=250m/500m memory=32Mi/64Mi`)
	n.await(n.cgroupFiles, `
		batch        100000 100000 weight 40  memory 128Mi low 64Mi high 124516Ki
		batch/app    20000 100000  weight 17  memory 32Mi  low 16Mi high 31128Ki
		batch/helper 100000 100000 weight 100 memory 128Mi
		db           10000 100000  weight 17  memory 48Mi  min 48Mi
		db/main      10000 100000  weight 17  memory 48Mi  min 48Mi
		web          50000 100000  weight 35  memory 64Mi  low 32Mi
		web/main     50000 100000  weight 35  memory 64Mi  low 32Mi high 62256Ki`)
	n.requireActions("create batch/app", "create batch/helper", "create db/main", "create web/main",
		"write uid-batch", "write uid-db", "write uid-web")
}

func (n *v2Node) grow() {
	n.setPod("web", "", "main cpu=500m/1 memory=64Mi/128Mi")
	n.setPod("db", "", "main cpu=200m/200m memory=64Mi/64Mi")
	n.setPod("batch", "cpu=600m/2 memory=96Mi/160Mi", "app cpu=100m/200m memory=16Mi/32Mi", "helper")
	n.applyPods()
	n.await(n.cgroupFiles, `
		batch        200000 100000 weight 67  memory 160Mi low 96Mi high 157284Ki
		batch/app    20000 100000  weight 17  memory 32Mi  low 16Mi high 31128Ki
		batch/helper 200000 100000 weight 174 memory 160Mi          high 144Mi
		db           20000 100000  weight 29  memory 64Mi  min 64Mi
		db/main      20000 100000  weight 29  memory 64Mi  min 64Mi
		web          100000 100000 weight 59  memory 128Mi low 64Mi
		web/main     100000 100000 weight 59  memory 128Mi low 64Mi high 124516Ki`)
	n.await(n.statusLines, `
		batch Running, app: ready, helper: ready, cpu=100m/200m memory=16Mi/32Mi
		db    Running, main: ready, cpu=200m/200m memory=64Mi/64Mi
		web   Running, main: ready, cpu=500m/1 memory=64Mi/128Mi`)
	n.requireActions("update batch/helper", "update db/main", "update web/main", "write uid-batch", "write uid-db", "write uid-web")
}

func (n *v2Node) shrink() {
	n.setPod("web", "", "main cpu=100m/200m memory=32Mi/40Mi")
	n.setPod("db", "", "main cpu=50m/50m memory=32Mi/32Mi")
	n.setPod("batch", "cpu=300m/1 memory=64Mi/128Mi", "app cpu=100m/200m memory=16Mi/24Mi", "helper")
	n.applyPods()
	n.await(n.cgroupFiles, `
		batch        100000 100000 weight 40  memory 128Mi low 64Mi high 124516Ki
		batch/app    20000 100000  weight 17  memory 24Mi  low 16Mi high 23756Ki
		batch/helper 100000 100000 weight 100 memory 128Mi          high 117964Ki
		db           5000 100000   weight 11  memory 32Mi  min 32Mi
		db/main      5000 100000   weight 11  memory 32Mi  min 32Mi
		web          20000 100000  weight 17  memory 40Mi  low 32Mi
		web/main     20000 100000  weight 17  memory 40Mi  low 32Mi high 40140Ki`)
	n.await(n.statusLines, `
		batch Running, app: ready, helper: ready, cpu=100m/200m memory=16Mi/24Mi
		db    Running, main: ready, cpu=50m/50m memory=32Mi/32Mi
		web   Running, main: ready, cpu=100m/200m memory=32Mi/40Mi`)
	n.requireActions("update batch/app", "update batch/helper", "update db/main", "update web/main",
		"write uid-batch", "write uid-db", "write uid-web")
}

// requestLimits raises memory requests to the limits, which ends throttling.
func (n *v2Node) requestLimits() {
	n.setPod("web", "", "main cpu=100m/200m memory=96Mi/96Mi")
	n.setPod("batch", "cpu=300m/1 memory=128Mi/128Mi", "app cpu=100m/200m memory=24Mi/24Mi", "helper")
	n.applyPods()
	n.await(n.cgroupFiles, `
		batch        100000 100000 weight 40  memory 128Mi low 128Mi
		batch/app    20000 100000  weight 17  memory 24Mi  low 24Mi
		batch/helper 100000 100000 weight 100 memory 128Mi          high 117964Ki
		db           5000 100000   weight 11  memory 32Mi  min 32Mi
		db/main      5000 100000   weight 11  memory 32Mi  min 32Mi
		web          20000 100000  weight 17  memory 96Mi  low 96Mi
		web/main     20000 100000  weight 17  memory 96Mi  low 96Mi`)
	n.await(n.statusLines, `
		batch Running, app: ready, helper: ready, cpu=100m/200m memory=24Mi/24Mi
		db    Running, main: ready, cpu=50m/50m memory=32Mi/32Mi
		web   Running, main: ready, cpu=100m/200m memory=96Mi/96Mi`)
	n.requireActions("update batch/app", "update web/main", "write uid-batch", "write uid-web")
}

// refuse requests more CPU than the node has, another QoS class, and less memory than is used. Neither this agent nor a
// restarted one applies these requests.
func (n *v2Node) refuse() {
	n.awaitMemoryUse("uid-web", 8<<20)
	cgroupFiles := n.cgroupFiles()
	n.setPod("web", "", "main cpu=100m/200m memory=1Mi/4Mi")
	n.setPod("db", "", "main cpu=50m/100m memory=32Mi/32Mi")
	n.setPod("batch", "cpu=900m/1 memory=128Mi/128Mi", "app cpu=100m/200m memory=24Mi/24Mi", "helper")
	n.applyPods()
	for range 2 {
		n.awaitWords(
			"batch Running, app: ready, helper: ready, cpu=100m/200m memory=24Mi/24Mi, "+
				"PodResizePending Deferred: node has 700m of CPU, not 900m\n",
			"db Running, main: ready, cpu=50m/50m memory=32Mi/32Mi, "+
				"PodResizePending Infeasible: Pod QOS Class may not change as a result of resizing\n",
			"web Running, main: ready, cpu=100m/200m memory=96Mi/96Mi, PodResizeInProgress Error: resize pod default/web: "+
				"cannot decrease memory limits: attempting to set pod memory limit (4194304) below current usage (",
			`attempting to set container "main" memory limit (4194304) below current usage (`)
		n.kill()
		n.requireActions()
		n.startAgent()
	}
	n.requireActions()
	require.Equal(n.t, cgroupFiles, n.cgroupFiles())
}

// failPodWrite fails the write to the cgroup of a pod whose container is resized already. The restarted agent completes the
// resize.
func (n *v2Node) failPodWrite() {
	n.cgroups.fail(errors.New("no space"))
	n.setPod("web", "", "main cpu=50m/100m memory=96Mi/96Mi")
	n.setPod("db", "", "main cpu=50m/50m memory=32Mi/32Mi")
	n.setPod("batch", "cpu=300m/1 memory=128Mi/128Mi", "app cpu=100m/200m memory=24Mi/24Mi", "helper")
	n.applyPods()
	n.awaitWords("web Running, main: ready, cpu=50m/100m memory=96Mi/96Mi, PodResizeInProgress Error: ", "no space")
	n.kill()
	n.requireActions("update web/main", "write uid-web")
	n.cgroups.fail(nil)
	n.startAgent()
	n.await(n.statusLines, `
		batch Running, app: ready, helper: ready, cpu=100m/200m memory=24Mi/24Mi
		db    Running, main: ready, cpu=50m/50m memory=32Mi/32Mi
		web   Running, main: ready, cpu=50m/100m memory=96Mi/96Mi`)
	n.await(n.cgroupFiles, `
		batch        100000 100000 weight 40  memory 128Mi low 128Mi
		batch/app    20000 100000  weight 17  memory 24Mi  low 24Mi
		batch/helper 100000 100000 weight 100 memory 128Mi          high 117964Ki
		db           5000 100000   weight 11  memory 32Mi  min 32Mi
		db/main      5000 100000   weight 11  memory 32Mi  min 32Mi
		web          10000 100000  weight 11  memory 96Mi  low 96Mi
		web/main     10000 100000  weight 11  memory 96Mi  low 96Mi`)
	n.requireActions("write uid-web")
}

// resizeWhileStopped changes resources while no agent runs.
func (n *v2Node) resizeWhileStopped() {
	n.kill()
	n.setPod("db", "", "main cpu=100m/100m memory=48Mi/48Mi")
	n.startAgent()
	n.await(n.statusLines, `
		batch Running, app: ready, helper: ready, cpu=100m/200m memory=24Mi/24Mi
		db    Running, main: ready, cpu=100m/100m memory=48Mi/48Mi
		web   Running, main: ready, cpu=50m/100m memory=96Mi/96Mi`)
	n.requireActions("update db/main", "write uid-db")
}

// With memory QoS, a container whose request becomes its limit is not throttled, even if a restarted agent applies the change.
func TestResizeOfRequestToLimitEndsThrottling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		node := &qos.Node{
			MemoryCapacity: 1 << 30, NoSwapController: true, Reservation: qos.TieredReservation, ThrottlingFactor: new(0.9),
		}
		n := startAgent(t, rt, rt, lifecycle.Options{Spec: podspec.Options{Node: node}})
		n.set(sizedPod(t, 1, "cpu=100m/ memory=32Mi/64Mi"))
		time.Sleep(time.Second)
		c, _ := rt.Container("a/main")
		require.Equal(t, "63750144", c.Resources.Unified["memory.high"])

		pod := sizedPod(t, 2, "cpu=100m/ memory=64Mi/64Mi")
		n.set(pod)
		time.Sleep(time.Second)
		c, _ = rt.Container("a/main")
		require.Equal(t, "max", c.Resources.Unified["memory.high"])
		require.Equal(t, "67108864", c.Resources.Unified["memory.low"])

		z := resize.Decide(resize.State{
			Pod: pod, Observed: cri.Pod{Containers: []cri.Container{c}}, Spec: podspec.Options{Node: node},
		})
		require.Empty(t, z.Containers)
	})
}
