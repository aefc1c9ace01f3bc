// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// Workloads of every kind, and operations on them by users and administrators, on one node.
func TestClusterWorkloads(t *testing.T) {
	m := newMember(t, map[string]any{})
	for name, test := range map[string]func(*testing.T, *member){
		"job with tokens of its pods":           jobWithToken,
		"stateful set keeps its data by claims": statefulSet,
		"daemon set, drain and taint":           taintAndDrain,
		"static pod has a mirror pod":           staticPodMirror,
		"pods that do not fit are rejected":     podsThatDoNotFit,
		"readiness gates and deadlines":         readinessGates,
		"pod deleted while its image is pulled": deletedWhilePulling,
	} {
		t.Run(name, func(t *testing.T) { test(t, m.forTest(t)) })
	}
}

// forTest returns the member for a subtest.
func (m *member) forTest(t *testing.T) *member {
	other, n := *m, *m.node
	n.t = t
	other.node = &n
	return &other
}

// pod returns a pod of the API server.
func (m *member) pod(name string) *corev1.Pod {
	m.t.Helper()
	pod := &corev1.Pod{}
	require.NoError(m.t, json.Unmarshal([]byte(m.do("get", "pod", name, "-o", "json")), pod))
	return pod
}

func jobWithToken(t *testing.T, m *member) {
	m.apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: who}
spec:
  completions: 3
  parallelism: 2
  template:
    metadata: {labels: {app: who}}
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: nodeagent.test/busybox:1
        command: [sh, -c, "cat /var/run/secrets/kubernetes.io/serviceaccount/token > /dev/termination-log; test -n \"$KUBERNETES_SERVICE_HOST\""]
`)
	m.do("wait", "--for=condition=complete", "job/who", "--timeout=60s")
	pods := m.listPods("app=who")
	require.Len(t, pods, 3)
	token := pods[0].Status.ContainerStatuses[0].State.Terminated.Message
	review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	require.NoError(t, m.Admin().Do(within(t, timeout), http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", &review, &review))
	require.True(t, review.Status.Authenticated, review.Status.Error)
	require.Equal(t, authenticationv1.ExtraValue{pods[0].Name}, review.Status.User.Extra["authentication.kubernetes.io/pod-name"])
	m.do("delete", "job/who")
	m.eventually(timeout, "get", "pods", "-l", "app=who", "-o", "name")("")
}

func statefulSet(t *testing.T, m *member) {
	for i := range 2 {
		m.apply(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk%d}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: manual
  hostPath: {path: %q}
`, i, t.TempDir()))
	}
	m.apply(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: nodeagent.test/busybox:1
        command: [sh, -c, "echo $(hostname) >> /data/starts; trap exit TERM; while :; do sleep 0.2; done"]
        readinessProbe: {exec: {command: [test, -s, /data/starts]}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: manual, resources: {requests: {storage: 1Gi}}}
`)
	m.do("rollout", "status", "statefulset/db", "--timeout=60s")
	first, second := m.pod("db-0"), m.pod("db-1")
	require.False(t, second.Status.StartTime.Before(first.Status.StartTime), "the pods start one after the other")
	m.do("delete", "pod", "db-0")
	m.do("rollout", "status", "statefulset/db", "--timeout=60s")
	require.NotEqual(t, first.UID, m.pod("db-0").UID)
	m.do("delete", "statefulset/db", "pvc/data-db-0", "pvc/data-db-1")
	m.eventually(timeout, "get", "pods", "-l", "app=db", "-o", "name")("")
	m.do("delete", "pv/disk0", "pv/disk1")
}

func taintAndDrain(t *testing.T, m *member) {
	m.apply(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: every}
spec:
  selector: {matchLabels: {app: every}}
  template:
    metadata: {labels: {app: every}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1000000"]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: some}
spec:
  replicas: 3
  selector: {matchLabels: {app: some}}
  template:
    metadata: {labels: {app: some}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1000000"]}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: some}
spec: {minAvailable: 0, selector: {matchLabels: {app: some}}}
`)
	m.do("rollout", "status", "deployment/some", "--timeout=60s")
	m.do("rollout", "status", "daemonset/every", "--timeout=60s")
	m.do("drain", "n1", "--ignore-daemonsets", "--timeout=60s")
	m.eventually(timeout, "get", "pods", "-l", "app=some", "--field-selector", "status.phase=Running", "-o", "name")("")
	require.Len(t, m.listPods("app=every"), 1)
	m.do("uncordon", "n1")
	m.do("rollout", "status", "deployment/some", "--timeout=60s")

	m.do("taint", "node", "n1", "maintenance=now:NoExecute")
	m.eventually(timeout, "get", "pods", "-l", "app=some", "--field-selector", "status.phase=Running", "-o", "name")("")
	require.Len(t, m.listPods("app=every"), 1)
	m.do("taint", "node", "n1", "maintenance-")
	m.do("rollout", "status", "deployment/some", "--timeout=60s")
	m.do("delete", "daemonset/every", "deployment/some", "pdb/some")
	m.eventually(timeout, "get", "pods", "-l", "app in (some,every)", "-o", "name")("")
}

func staticPodMirror(t *testing.T, m *member) {
	m.manifests.Write("still.yaml", podYAML("still", sleeper))
	running := func() {
		m.eventually(timeout, "get", "pod", "still-n1", "--ignore-not-found", "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].ready}")("Running true")
	}
	running()
	before := m.pod("still-n1")
	require.Equal(t, "Node", before.OwnerReferences[0].Kind)
	containers, _ := m.containers("still-n1")

	m.do("delete", "pod", "still-n1", "--grace-period=0", "--force")
	exetest.Eventually(t, timeout, func() error {
		if out, err := m.try("", "get", "pod", "still-n1", "-o", "jsonpath={.metadata.uid}"); err != nil || out == string(before.UID) {
			return fmt.Errorf("the mirror pod is not recreated: %q %w", out, err)
		}
		return nil
	})
	running()
	after, _ := m.containers("still-n1")
	require.Equal(t, containers, after, "no container is restarted when a mirror pod is deleted")

	m.manifests.Write("still.yaml", podYAML("still", "echo other; "+sleeper))
	exetest.Eventually(t, timeout, func() error {
		out, err := m.try("", "get", "pod", "still-n1", "-o", "jsonpath={.metadata.annotations.kubernetes\\.io/config\\.mirror}")
		if err != nil || out == before.Annotations[corev1.MirrorPodAnnotationKey] {
			return fmt.Errorf("the mirror pod has the old manifest: %w", err)
		}
		return nil
	})
	running()
	m.manifests.Remove("still.yaml")
	m.eventually(timeout, "get", "pod", "still-n1", "--ignore-not-found", "-o", "name")("")
}

func podsThatDoNotFit(t *testing.T, m *member) {
	m.apply(`
apiVersion: v1
kind: Pod
metadata: {name: large}
spec:
  nodeName: n1
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1"], resources: {requests: {cpu: "1000"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: elsewhere}
spec:
  nodeName: n1
  nodeSelector: {zone: moon}
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: never}
spec:
  nodeName: n1
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1"], resources: {limits: {example.com/device: 1}}}]
`)
	for pod, reason := range map[string]string{"large": "OutOfcpu", "elsewhere": "NodeAffinity", "never": "PodFeatureUnsupported"} {
		m.eventually(timeout, "get", "pod", pod, "-o", "jsonpath={.status.phase} {.status.reason}")("Failed " + reason)
	}
	began := time.Now()
	m.do("delete", "pod", "large", "elsewhere", "never")
	require.Less(t, time.Since(began), 15*time.Second)
}

func readinessGates(t *testing.T, m *member) {
	m.apply(`
apiVersion: v1
kind: Pod
metadata: {name: gated}
spec:
  readinessGates: [{conditionType: example.com/ready}]
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1000000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: short}
spec:
  activeDeadlineSeconds: 2
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1000000"]}]
`)
	ready := `jsonpath={.status.conditions[?(@.type=="Ready")].status}`
	m.eventually(timeout, "get", "pod", "gated", "-o", `jsonpath={.status.conditions[?(@.type=="ContainersReady")].status}`)("True")
	require.Equal(t, "False", m.do("get", "pod", "gated", "-o", ready))
	m.do("patch", "pod", "gated", "--subresource=status", "-p", `{"status":{"conditions":[{"type":"example.com/ready","status":"True"}]}}`)
	m.eventually(timeout, "get", "pod", "gated", "-o", ready)("True")
	m.eventually(timeout, "get", "pod", "short", "-o", "jsonpath={.status.phase} {.status.reason}")("Failed DeadlineExceeded")
	m.do("delete", "pod", "gated", "short")
}

func deletedWhilePulling(_ *testing.T, m *member) {
	m.apply(`
apiVersion: v1
kind: Pod
metadata: {name: pulling}
spec:
  nodeName: n1
  containers: [{name: main, image: "nodeagent.invalid/nothing:1"}]
`)
	m.eventually(timeout, "get", "pod", "pulling", "-o", "jsonpath={.status.containerStatuses[0].state.waiting.reason}")("ImagePullBackOff")
	m.do("delete", "pod", "pulling", "--timeout=20s")
}

// While the API server is unavailable, pods keep running and their containers are restarted. A restarted agent restarts
// none. It reports the statuses once the API server is available.
func TestClusterAPIServerKilled(t *testing.T) {
	m := newMember(t, map[string]any{})
	m.apply(`
apiVersion: v1
kind: Pod
metadata: {name: lonely}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sh, -c, "trap exit TERM; while :; do sleep 0.1; done"]}]
`)
	m.do("wait", "--for=condition=ready", "pod/lonely", "--timeout=60s")
	require.NoError(t, m.Kill(controlplane.APIServer))
	c, err := m.runningContainer("lonely")
	require.NoError(t, err)
	require.NoError(t, m.client.StopContainer(within(t, timeout), c.ID, 0))
	var again cri.Container
	exetest.Eventually(t, timeout, func() (err error) {
		again, err = m.runningContainer("lonely")
		if err == nil && again.ID == c.ID {
			err = fmt.Errorf("the container is not restarted")
		}
		return err
	})
	m.restart() // the new agent runs its stored pods
	time.Sleep(2 * time.Second)
	same, err := m.runningContainer("lonely")
	require.NoError(t, err)
	require.Equal(t, again.ID, same.ID)
	require.NoError(t, m.Restart(t.Context(), controlplane.APIServer))
	m.eventually(timeout, "get", "pod", "lonely", "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.phase}")("1 Running")
	m.do("delete", "pod", "lonely", "--timeout=20s")
}

// A node with too little memory reports MemoryPressure at once. An evicted pod of the API server fails and is not restarted.
func TestClusterEviction(t *testing.T) {
	m := newMember(t, map[string]any{})
	m.apply(`
apiVersion: v1
kind: Pod
metadata: {name: victim}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1000000"]}]
`)
	m.manifests.Write("still.yaml", podYAML("still", sleeper))
	m.do("wait", "--for=condition=ready", "pod/victim", "--timeout=60s")
	still := m.awaitRunning(timeout, "still-n1")["still-n1"]

	m.config["evictionHard"] = map[string]string{"memory.available": "99%"}
	m.config["systemReserved"] = map[string]string{"cpu": "100m"}
	m.restart()
	m.eventually(timeout, "get", "pod", "victim", "-o", "jsonpath={.status.phase} {.status.reason}")("Failed Evicted")
	m.eventually(timeout, "get", "node", "n1", "-o", `jsonpath={.status.conditions[?(@.type=="MemoryPressure")].status}`)("True")
	m.eventually(timeout, "get", "events", "--field-selector", "involvedObject.name=victim,reason=Evicted", "-o", "jsonpath={.items[*].type} {.items[*].metadata.annotations.starved_resource} {.items[*].metadata.annotations.offending_containers}")("Warning memory main")
	for _, resource := range []string{"memory", "cpu"} {
		amounts := strings.Fields(m.do("get", "node", "n1", "-o", "jsonpath={.status.capacity."+resource+"} {.status.allocatable."+resource+"}"))
		capacity, left := resourceapi.MustParse(amounts[0]), resourceapi.MustParse(amounts[1])
		require.Less(t, left.AsApproximateFloat64(), capacity.AsApproximateFloat64(), "%s is reserved on the node", resource)
	}
	same, err := m.runningContainer("still-n1")
	require.NoError(t, err)
	require.Equal(t, still.ID, same.ID, "the static pod is not evicted")
}
