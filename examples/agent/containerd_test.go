// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// wholePod is a pod with every kind of container and every kind of resource that this agent provides.
const wholePod = `apiVersion: v1
kind: Pod
metadata: {name: whole, labels: {app: shop}}
spec:
  terminationGracePeriodSeconds: 2
  hostAliases: [{ip: 192.0.2.9, hostnames: [db.example]}]
  initContainers:
    - name: prepare
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, "echo prepared"]
    - name: sidecar
      image: nodeagent.test/busybox:1
      restartPolicy: Always
      command: [/bin/sh, -c, "echo beside; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
  containers:
    - name: main
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, "grep db.example /etc/hosts | tr -s '\\t' ' '; echo of $APP at $DB_SERVICE_HOST with $PASSWORD; grep nameserver /etc/resolv.conf; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
      env:
        - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
        - {name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}
      resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}
      readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
`

const serviceYAML = `apiVersion: v1
kind: Service
metadata: {name: db, namespace: default}
spec: {clusterIP: 192.0.2.7, ports: [{port: 5432}]}
`

const secretYAML = `apiVersion: v1
kind: Secret
metadata: {name: db, namespace: default}
stringData: {password: hunter2}
`

// A pod gets everything that it requests, although its agent is killed at random moments. A started container is not
// restarted.
func TestIntegrationWholePod(t *testing.T) {
	n := newNode(t)
	n.objects.Write("default/services/db.yaml", serviceYAML)
	n.objects.Write("default/secrets/db.yaml", secretYAML)
	n.manifests.Write("whole.yaml", wholePod)
	n.manifests.Write("job.yaml", strings.Replace(podYAML("job", "echo all done > /dev/termination-log"), "spec:", "spec:\n  restartPolicy: Never", 1))
	fields := map[string]any{"clusterDNS": []string{"192.0.2.10"}, "clusterDomain": "cluster.local"}
	for range 6 {
		a := n.start(fields)
		time.Sleep(rand.N(1500 * time.Millisecond)) // the agent is killed at a random moment
		a.Kill()
	}
	a := n.start(fields)
	a.AwaitLine(2*timeout, "pod=whole-n1 phase=Running", `summary="1/1 restarts=0`)
	a.AwaitLine(timeout, "pod=job-n1 phase=Succeeded", "Completed all done")
	n.awaitLog("whole-n1", "prepare", "prepared")
	n.awaitLog("whole-n1", "sidecar", "beside")
	n.awaitLog("whole-n1", "main", "192.0.2.9 db.example", "of shop at 192.0.2.7 with hunter2", "nameserver 192.0.2.10")

	before, uid := n.containers("whole-n1")
	var main string
	started := map[string]int{}
	for id, c := range before {
		name, _, _ := strings.Cut(c, " ")
		started[name]++
		if name == "main" {
			main = id
		}
	}
	require.Equal(t, 1, started["main"], "%q", before)
	require.Equal(t, 1, started["sidecar"], "%q", before)
	limits, err := n.cgroups.Limits(t.Context(), cgroups.PodPath("", cgroups.Burstable, uid).Join(main))
	require.NoError(t, err)
	shares := uint64(102)
	if n.cgroups.Host().Mode == driver.V2 {
		shares = cgroups.RoundTripShares(shares, cgroups.WeightLogQuadratic)
	}
	require.Equal(t, shares, limits.CPUShares)
	require.EqualValues(t, 20000, limits.CPUQuota)
	require.EqualValues(t, 64<<20, *limits.MemoryMax)
	a.Kill()
	for range 4 {
		a := n.start(fields)
		time.Sleep(rand.N(1500 * time.Millisecond))
		a.Kill()
	}
	a = n.start(fields)
	a.AwaitLine(timeout, "pod=whole-n1 phase=Running", `summary="1/1 restarts=0`)
	a.AwaitLine(timeout, "pod=job-n1 phase=Succeeded")
	after, _ := n.containers("whole-n1")
	require.Equal(t, before, after)
	// containerd 2.4 can lose a sandbox if the caller of RunPodSandbox dies during the call. No CRI call shows it.
	n.drain(a, "shim", "runc", "mount")
}

// The log of a container that writes 50 MB at once stays within its limits.
func TestIntegrationLogBurst(t *testing.T) {
	n := newNode(t)
	n.manifests.Write("burst.yaml", podYAML("burst", "yes 'one line of many, and of no matter' | head -c 50000000; echo; trap 'exit 0' TERM; while :; do echo over; sleep 0.1; done"))
	a := n.start(map[string]any{"containerLogMaxSize": "1Mi", "containerLogMaxFiles": 3})
	watch := n.watchLog("burst-n1")
	exetest.Eventually(t, 2*timeout, func() error {
		watch.update()
		if !strings.HasSuffix(n.log("burst-n1", "main"), "\nover\n") {
			return fmt.Errorf("the burst is not written completely; files so far: %d", len(watch.seen))
		}
		return nil
	})
	budget := logs.Policy{MaxSize: 1 << 20, MaxFiles: 3}.MaxBytes()
	t.Logf("%d files seen, %d bytes at most, limit %d", len(watch.seen), watch.most, budget)
	require.LessOrEqual(t, watch.most, budget+24<<20, "the log stays below half of the output, also on a busy machine")
	require.NotContains(t, a.Output(), "level=ERROR")
	n.drain(a)
}

// In a pod with a user namespace, root is another user of the host.
func TestIntegrationUserNamespace(t *testing.T) {
	n := newNode(t)
	n.manifests.Write("users.yaml", strings.Replace(podYAML("users", "cat /proc/self/uid_map | tr -s ' '; "+sleeper), "spec:", "spec:\n  hostUsers: false", 1))
	a := n.start(nil)
	if !n.hasUserNamespaces() {
		a.AwaitLine(timeout, "spec.hostUsers", "the runtime has no user namespaces with handler")
		a.Terminate(timeout)
		t.Skip("this kernel or runtime has no user namespaces for pods; the agent names the field")
	}
	n.awaitLog("users-n1", "main", " 0 65536 65536")
	n.drain(a)
}

func (n *node) hasUserNamespaces() bool {
	status, err := n.client.Status(within(n.t, 30*time.Second))
	require.NoError(n.t, err)
	return slices.ContainsFunc(status.Handlers, func(h cri.RuntimeHandler) bool { return h.Name == "" && h.UserNamespaces })
}

// Thirty pods run, and follow changes of their manifests and containers.
func TestIntegrationThirtyPods(t *testing.T) {
	n := newNode(t)
	var names []string
	for i := range 30 {
		name := fmt.Sprintf("pod%02d", i)
		n.manifests.Write(name+".yaml", podYAML(name, sleeper))
		names = append(names, name+"-n1")
	}
	a := n.start(nil)
	before := n.awaitRunning(90*time.Second, names...)

	// A changed manifest replaces the container of its pod, and no other.
	n.manifests.Write("pod00.yaml", podYAML("pod00", "echo changed; "+sleeper))
	exetest.Eventually(t, 20*time.Second, func() error {
		c, err := n.runningContainer("pod00-n1")
		if err == nil && c.ID == before["pod00-n1"].ID {
			err = fmt.Errorf("the old container still runs")
		}
		return err
	})

	// The pod of a removed manifest terminates within its grace period.
	n.manifests.Remove("pod01.yaml")
	exetest.Eventually(t, 10*time.Second, func() error {
		pods, err := n.pods()
		if _, there := pods["pod01-n1"]; there {
			err = fmt.Errorf("pod01 is not removed")
		}
		return err
	})

	// A killed container is restarted as the next attempt.
	n.killContainer(before["pod02-n1"])
	exetest.Eventually(t, 10*time.Second, func() error {
		c, err := n.runningContainer("pod02-n1")
		if err == nil && c.Attempt != 1 {
			err = fmt.Errorf("attempt %d", c.Attempt)
		}
		return err
	})
	after := n.awaitRunning(time.Second, names[3:]...)
	for _, name := range names[3:] {
		require.Equal(t, before[name].ID, after[name].ID, "the container of %s is not restarted", name)
	}

	for i := range 30 {
		if i != 1 {
			n.manifests.Remove(fmt.Sprintf("pod%02d.yaml", i))
		}
	}
	n.awaitNoLeftovers(30 * time.Second)
	a.Terminate(10 * time.Second)
}
