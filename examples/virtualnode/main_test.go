// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// program is the example program.
var program exetest.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

const limit = time.Minute // the longest wait for changes that take a second or two on an idle machine

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: %q}}]
users: [{name: user, user: {token: any}}]
contexts: [{name: context, context: {cluster: cluster, user: user}}]
current-context: context
`

// newPod returns a pod on n1 with features that the runtime in memory lacks: images, volumes and probes.
func newPod(name string, restart corev1.RestartPolicy) *corev1.Pod {
	refuses := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: "n1", RestartPolicy: restart,
			Volumes:        []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			InitContainers: []corev1.Container{{Name: "init", Image: "any"}},
			Containers: []corev1.Container{{
				Name: "main", Image: "any", ReadinessProbe: refuses,
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
		},
	}
}

// An API server in memory gets two nodes. Of the pods on one node, one keeps running, one completes, one fails repeatedly,
// and one is rejected.
func TestVirtualNode(t *testing.T) {
	server := apiservertest.NewServer(apiservertest.Options{})
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	listening, stop := server.Listen(true)
	t.Cleanup(stop)
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, kubeconfig, listening.Host), 0o600))
	p := program.Start(t, "-kubeconfig", config, "-cpu", "2", "-memory", "1Gi", "-jobs", "100ms", "-v", "n1", "n2")
	exetest.Eventually(t, limit, func() error { return checkReady(server, "n1", "n2") })

	failing, large := newPod("failing", corev1.RestartPolicyAlways), newPod("large", corev1.RestartPolicyAlways)
	failing.Annotations = map[string]string{"virtualnode/exit-code": "3"}
	large.Spec.NodeSelector = map[string]string{"none": "such"}
	for _, p := range []*corev1.Pod{newPod("web", corev1.RestartPolicyAlways), newPod("job", corev1.RestartPolicyNever), failing, large} {
		podapi.Default(p) // like a real API server
		require.NoError(t, server.Put(p))
	}
	for name, is := range map[string]func(corev1.PodStatus) bool{
		"web": func(st corev1.PodStatus) bool {
			return st.Phase == corev1.PodRunning && st.PodIP != "" && st.ContainerStatuses[0].Ready && st.InitContainerStatuses[0].State.Terminated != nil
		},
		"job": func(st corev1.PodStatus) bool { return st.Phase == corev1.PodSucceeded },
		"failing": func(st corev1.PodStatus) bool {
			last := st.ContainerStatuses
			return len(last) == 1 && last[0].RestartCount > 0 && last[0].LastTerminationState.Terminated.ExitCode == 3
		},
		"large": func(st corev1.PodStatus) bool { return st.Phase == corev1.PodFailed && st.Reason == "NodeAffinity" },
	} {
		exetest.Eventually(t, limit, func() error {
			found, _ := apiservertest.Get[*corev1.Pod](server, "default", name)
			if !is(found.Status) {
				return fmt.Errorf("unexpected status of pod %s: %+v", name, found.Status)
			}
			return nil
		})
	}
	require.NoError(t, server.Delete(newPod("web", ""), nil))
	exetest.Eventually(t, limit, func() error {
		if _, found := apiservertest.Get[*corev1.Pod](server, "default", "web"); found {
			return fmt.Errorf("pod web is not deleted")
		}
		return nil
	})
	require.Zero(t, p.Terminate(limit))
}

// A thousand nodes become ready in one process and run ten pods each. The test logs the time, the memory and the processor time of the program, the
// last also for half a minute of rest.
func TestThousandNodesRunPods(t *testing.T) {
	if os.Getenv("NODEAGENT_SOAK") == "" {
		t.Skip("takes minutes of both processors: NODEAGENT_SOAK=1")
	}
	server := apiservertest.NewServer(apiservertest.Options{RequestLog: 100_000})
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	listening, stop := server.Listen(true)
	t.Cleanup(stop)
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, kubeconfig, listening.Host), 0o600))
	args, names := []string{"-kubeconfig", config, "-cpu", "2", "-memory", "1Gi"}, []string(nil)
	for i := range 1000 {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	began := time.Now()
	p := program.Start(t, append(args, names...)...)
	exetest.Eventually(t, 5*limit, func() error { return checkReady(server, names...) })
	t.Logf("ready after %v: %s", time.Since(began), readUsage(t, p.PID()))

	began = time.Now()
	for i := range 10_000 {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: names[i%1000], Containers: []corev1.Container{{Name: "main", Image: "any"}}}}
		pod.Namespace, pod.Name = "default", fmt.Sprintf("p%d", i)
		podapi.Default(pod) // like a real API server
		require.NoError(t, server.Put(pod))
	}
	patches := apiservertest.Match{Verb: "patch", Resource: "pods"}
	exetest.Eventually(t, 5*limit, func() error {
		if n := server.CountRequests(patches); n < 10_000 {
			return fmt.Errorf("%d statuses of 10000 pods", n)
		}
		return nil
	})
	t.Logf("10,000 pods run after %v: %s", time.Since(began), readUsage(t, p.PID()))
	for i := range 2 {
		time.Sleep(30 * time.Second) // a period of rest
		t.Logf("after %d periods of rest of 30 s: %s", i+1, readUsage(t, p.PID()))
	}
	running := 0
	for _, pod := range apiservertest.List[*corev1.Pod](server) {
		if pod.Status.Phase == corev1.PodRunning {
			running++
		}
	}
	require.Equal(t, 10_000, running)
	require.Equal(t, 10_000, server.CountRequests(patches), "one for each pod")
	require.Zero(t, p.Terminate(limit))
}

// readUsage returns the memory, the threads and the processor time of a process.
func readUsage(t *testing.T, pid int) string {
	t.Helper()
	var found []string
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "Threads") {
			found = append(found, strings.Join(strings.Fields(line), " "))
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(stat))
	return strings.Join(append(found, "user and system time in hundredths of a second: "+fields[13]+" "+fields[14]), ", ")
}

func checkReady(server *apiservertest.Server, names ...string) error {
	for _, name := range names {
		n, found := apiservertest.Get[*corev1.Node](server, "", name)
		if !found {
			return fmt.Errorf("there is no node %s", name)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("node %s is not ready: %s", name, c.Message)
			}
		}
		if got := n.Status.Capacity.Cpu().String() + " " + n.Status.Capacity.Memory().String(); got != "2 1Gi" {
			return fmt.Errorf("node %s has %s", name, got)
		}
	}
	return nil
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"n1"}, {"-kubeconfig", "/dev/null"}} {
		p := program.Start(t, args...)
		require.Equal(t, 1, p.Wait(limit))
		require.Contains(t, p.Output(), "-kubeconfig and the names of nodes are required")
	}
}
