// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/faultproxy"
)

// faultTime is the duration of each fault: 5 s, ten minutes in a soak test, or the value of NODEAGENT_FAULTS.
func faultTime(t *testing.T) time.Duration {
	switch text := os.Getenv("NODEAGENT_FAULTS"); {
	case text != "":
		d, err := time.ParseDuration(text)
		require.NoError(t, err, "NODEAGENT_FAULTS")
		return d
	case os.Getenv("NODEAGENT_SOAK") != "":
		return 10 * time.Minute
	default:
		return 5 * time.Second
	}
}

// nodeMonitorGracePeriod is how long the node may be silent before its controller marks it as unknown.
const nodeMonitorGracePeriod = 40 * time.Second

// The limit of the requests of an agent whose requests fail: requestsAtOnce plus requestsPerSecond for each second.
const (
	requestsAtOnce    = 60
	requestsPerSecond = 12
)

// faultCase is a fault between the agent and the API server.
type faultCase struct {
	fault      faultproxy.Fault
	inject     func(p *faultproxy.Proxy) (end func()) // replaces fault
	nodeSilent bool                                   // the agent cannot reach the API server
}

// While requests to the API server fail in any way, pods keep running and their containers are restarted. The agent reports
// their statuses once the API server has recovered. The Ready condition of the node does not flap, and the API server gets
// no flood of requests.
func TestClusterFaults(t *testing.T) {
	m := newProxied(t, map[string]any{"keepObjects": true})
	m.apply(strings.Replace(deployment, "      terminationGracePeriodSeconds", "      tolerations: [{operator: Exists}]\n      terminationGracePeriodSeconds", 1))
	m.do("rollout", "status", "deployment/web", "--timeout=60s")
	code := func(code int, retryAfter time.Duration) faultCase {
		return faultCase{fault: faultproxy.Fault{Code: code, RetryAfter: retryAfter}, nodeSilent: true}
	}
	names := []string{"conflict", "too many requests", "error", "no answer", "watches are cut", "black hole", "connection refused"}
	faults := map[string]faultCase{
		"conflict":           code(http.StatusConflict, 0),
		"too many requests":  code(http.StatusTooManyRequests, time.Second),
		"error":              code(http.StatusInternalServerError, 0),
		"no answer":          {fault: faultproxy.Fault{Hang: true}, nodeSilent: true},
		"watches are cut":    {inject: cutWatches},
		"black hole":         {inject: switchedFault((*faultproxy.Proxy).SetBlackHole), nodeSilent: true},
		"connection refused": {inject: switchedFault((*faultproxy.Proxy).SetUnavailable), nodeSilent: true},
	}
	for i, name := range names {
		t.Run(name, func(t *testing.T) { m.forTest(t).runFault(i, faults[name]) })
	}
	m.do("delete", "deployment/web", "--wait=false")
	m.do("delete", "pods", "--all", "--timeout=20s")
	m.eventually(timeout, "get", "pods", "-o", "name")("")
	m.awaitNoLeftovers(timeout)
	left, err := os.ReadDir(filepath.Join(m.state, "pods"))
	require.NoError(t, err)
	for _, e := range left {
		require.False(t, e.IsDir() && e.Name() != ".spare", "the directory %s is removed", e.Name())
	}
}

// cutWatches disconnects every watch once a second.
func cutWatches(p *faultproxy.Proxy) (end func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				p.CutWatches()
			}
		}
	}()
	return func() { close(done); <-stopped }
}

// switchedFault is a fault that set turns on and off.
func switchedFault(set func(*faultproxy.Proxy, bool)) func(*faultproxy.Proxy) func() {
	return func(p *faultproxy.Proxy) func() {
		set(p, true)
		return func() { set(p, false) }
	}
}

// begin starts the fault. It lasts until end is called.
func (f *faultCase) begin(p *faultproxy.Proxy) (end func()) {
	if f.inject != nil {
		return f.inject(p)
	}
	return p.Inject(f.fault)
}

// faultRound has the pods of one fault.
type faultRound struct {
	*member
	pods            int    // replicas of the deployment after the round
	victim          string // pod whose container is killed; never before, so that it is restarted at once
	victimContainer cri.Container
	job             string       // pod whose container exits for good
	others          []corev1.Pod // unaffected pods
	before          map[string]map[string]string
}

// newRound creates the pods of a round.
func (m *member) newRound(i int) *faultRound {
	r := &faultRound{member: m, pods: 6 + i, job: fmt.Sprintf("once%d", i)}
	m.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sh, -c, "sleep 4; exit 3"]}]
`, r.job))
	m.do("wait", "--for=condition=ready", "pod/"+r.job, "--timeout=30s")
	pods := m.listPods("app=web")
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return int(a.Status.ContainerStatuses[0].RestartCount - b.Status.ContainerStatuses[0].RestartCount)
	})
	r.victim, r.others = pods[0].Name, pods[1:]
	r.before = m.containersByPod(r.others)
	var err error
	r.victimContainer, err = m.runningContainer(r.victim)
	require.NoError(m.t, err)
	return r
}

// runFault runs a round during a fault: a container is killed, another one exits for good, and a pod is added.
func (m *member) runFault(i int, f faultCase) {
	r := m.newRound(i)

	conditions, first := m.recordReadiness(), m.countTraffic()
	began, lasts := time.Now(), faultTime(m.t)
	end := sync.OnceFunc(f.begin(m.proxy))
	m.t.Cleanup(end)
	m.killContainer(r.victimContainer)
	m.do("scale", "deployment/web", fmt.Sprintf("--replicas=%d", r.pods))
	exetest.Eventually(m.t, timeout, func() error {
		c, err := m.runningContainer(r.victim)
		if err == nil && c.ID == r.victimContainer.ID {
			err = fmt.Errorf("the container is not replaced")
		}
		return err
	})
	m.t.Logf("the container was replaced after %v", time.Since(began).Round(10*time.Millisecond))
	time.Sleep(time.Until(began.Add(lasts)))
	lasted, last := time.Since(began), m.countTraffic()
	end()

	sent := traffic{last.requests - first.requests, last.watches - first.watches, last.connections - first.connections}
	m.t.Logf("in %v %d requests, %d of them watches, and %d connections", lasted.Round(time.Second), sent.requests, sent.watches, sent.connections)
	most := requestsAtOnce + requestsPerSecond*lasted.Seconds()
	require.LessOrEqual(m.t, float64(max(sent.requests, sent.connections)), most)
	r.awaitRecovery()
	unknown := 0
	for _, status := range conditions() {
		require.NotEqual(m.t, string(corev1.ConditionFalse), status, "the Ready condition does not become false")
		if status == string(corev1.ConditionUnknown) {
			unknown++
		}
	}
	if f.nodeSilent && lasted > nodeMonitorGracePeriod-10*time.Second {
		require.LessOrEqual(m.t, unknown, 1, "the Ready condition becomes unknown at most once")
		return
	}
	require.Zero(m.t, unknown, "the Ready condition does not become unknown")
}

// awaitRecovery waits until the API server has the statuses of all pods.
func (r *faultRound) awaitRecovery() {
	r.t.Helper()
	began := time.Now()
	r.eventually(2*timeout, "get", "pod", r.victim, "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")("1 true")
	r.eventually(2*timeout, "get", "pod", r.job, "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].state.terminated.exitCode}")("Failed 3")
	r.eventually(2*timeout, "get", "deployment/web", "-o", "jsonpath={.status.readyReplicas}")(strconv.Itoa(r.pods))
	r.awaitNode()
	r.t.Logf("all statuses are reported %v after the end of the fault", time.Since(began).Round(10*time.Millisecond))
	require.Equal(r.t, r.before, r.containersByPod(r.others), "no other container is restarted")
}

// traffic counts the requests and connections of an agent.
type traffic struct{ requests, watches, connections int }

func (m *member) countTraffic() traffic {
	return traffic{m.proxy.Count(faultproxy.Match{}), m.proxy.Count(faultproxy.Match{Verb: "watch"}), m.proxy.Connections()}
}

// containersByPod returns the containers of pods, by pod.
func (m *member) containersByPod(pods []corev1.Pod) map[string]map[string]string {
	all := map[string]map[string]string{}
	for i := range pods {
		ran, _ := m.containers(pods[i].Name)
		all[pods[i].Name] = maps.Clone(ran)
	}
	return all
}

// recordReadiness records the statuses of the Ready condition, in order and without repetitions, until the returned function
// is called.
func (m *member) recordReadiness() func() []string {
	done, stopped := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var seen []string
	read := func() {
		var node corev1.Node
		if m.Admin().Do(within(m.t, 10*time.Second), http.MethodGet, "/api/v1/nodes/n1", nil, &node) != nil {
			return // retried in a moment
		}
		for _, c := range node.Status.Conditions {
			if status := string(c.Status); c.Type == corev1.NodeReady && (len(seen) == 0 || seen[len(seen)-1] != status) {
				mu.Lock()
				seen = append(seen, status)
				mu.Unlock()
			}
		}
	}
	go func() {
		defer close(stopped)
		for read(); ; read() {
			select {
			case <-done:
				return
			case <-time.After(250 * time.Millisecond):
			}
		}
	}()
	return func() []string {
		close(done)
		<-stopped
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}
