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

// faultTime is how long each fault lasts: 5 s, ten minutes for a soak, or what NODEAGENT_FAULTS says.
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

// unreachable is how long nothing may come of a node before its controller says so.
const unreachable = 40 * time.Second

// The bound of requests of an agent whose requests fail: as many in all beside those for each second.
const (
	requestsAtOnce    = 60
	requestsPerSecond = 12
)

// faulty is a fault that the agent has to get through.
type faulty struct {
	fault  faultproxy.Fault
	during func(p *faultproxy.Proxy) (end func()) // in place of a fault
	silent bool                                   // nothing comes of the node meanwhile
}

// Whatever the API server answers, or does not, pods go on and are started again; what has become of them is told when it has recovered.
// The node does not flap, and the API server is not flooded.
func TestClusterFaults(t *testing.T) {
	m := newProxied(t, map[string]any{"keepObjects": true})
	m.apply(strings.Replace(deployment, "      terminationGracePeriodSeconds", "      tolerations: [{operator: Exists}]\n      terminationGracePeriodSeconds", 1))
	m.do("rollout", "status", "deployment/web", "--timeout=60s")
	code := func(code int, retryAfter time.Duration) faulty {
		return faulty{fault: faultproxy.Fault{Code: code, RetryAfter: retryAfter}, silent: true}
	}
	names := []string{"conflict", "too many requests", "error", "no answer", "watches are cut", "black hole", "connection refused"}
	faults := map[string]faulty{
		"conflict":           code(http.StatusConflict, 0),
		"too many requests":  code(http.StatusTooManyRequests, time.Second),
		"error":              code(http.StatusInternalServerError, 0),
		"no answer":          {fault: faultproxy.Fault{Hang: true}, silent: true},
		"watches are cut":    {during: cutWatches},
		"black hole":         {during: switched((*faultproxy.Proxy).SetBlackHole), silent: true},
		"connection refused": {during: switched((*faultproxy.Proxy).SetUnavailable), silent: true},
	}
	for i, name := range names {
		t.Run(name, func(t *testing.T) { m.in(t).through(i, faults[name]) })
	}
	m.do("delete", "deployment/web", "--wait=false")
	m.do("delete", "pods", "--all", "--timeout=20s")
	m.eventually(timeout, "get", "pods", "-o", "name")("")
	m.awaitNothing(timeout)
	left, err := os.ReadDir(filepath.Join(m.state, "pods"))
	require.NoError(t, err)
	for _, e := range left {
		require.False(t, e.IsDir() && e.Name() != ".spare", "%s is left behind", e.Name())
	}
}

// cutWatches cuts every watch once a second.
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

// switched is a fault that is turned on and off.
func switched(set func(*faultproxy.Proxy, bool)) func(*faultproxy.Proxy) func() {
	return func(p *faultproxy.Proxy) func() {
		set(p, true)
		return func() { set(p, false) }
	}
}

// begin has requests fail until end is called.
func (f *faulty) begin(p *faultproxy.Proxy) (end func()) {
	if f.during != nil {
		return f.during(p)
	}
	return p.Inject(f.fault)
}

// round is what happens while requests fail.
type round struct {
	*member
	pods   int    // of the deployment when it is over
	victim string // pod whose container is killed; it was not before, so that it is replaced at once
	old    cri.Container
	once   string       // pod whose container ends for good
	others []corev1.Pod // that nothing happens to
	before map[string]map[string]string
}

// newRound prepares the pods of a round.
func (m *member) newRound(i int) *round {
	r := &round{member: m, pods: 6 + i, once: fmt.Sprintf("once%d", i)}
	m.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sh, -c, "sleep 4; exit 3"]}]
`, r.once))
	m.do("wait", "--for=condition=ready", "pod/"+r.once, "--timeout=30s")
	pods := m.list("app=web")
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return int(a.Status.ContainerStatuses[0].RestartCount - b.Status.ContainerStatuses[0].RestartCount)
	})
	r.victim, r.others = pods[0].Name, pods[1:]
	r.before = m.steady(r.others)
	var err error
	r.old, err = m.running(r.victim)
	require.NoError(m.t, err)
	return r
}

// through lets a fault last. Meanwhile a container is killed, another one ends for good, and a pod is added.
func (m *member) through(i int, f faulty) {
	r := m.newRound(i)
	conditions, first := m.observe(), m.sent()
	began, lasts := time.Now(), faultTime(m.t)
	end := sync.OnceFunc(f.begin(m.proxy))
	m.t.Cleanup(end)
	m.kill(r.old)
	m.do("scale", "deployment/web", fmt.Sprintf("--replicas=%d", r.pods))
	exetest.Eventually(m.t, timeout, func() error {
		c, err := m.running(r.victim)
		if err == nil && c.ID == r.old.ID {
			err = fmt.Errorf("the container has not been replaced")
		}
		return err
	})
	m.t.Logf("the container was replaced after %v", time.Since(began).Round(10*time.Millisecond))
	time.Sleep(time.Until(began.Add(lasts)))
	lasted, last := time.Since(began), m.sent()
	end()
	sent := traffic{last.requests - first.requests, last.watches - first.watches, last.connections - first.connections}
	m.t.Logf("in %v %d requests, %d of them watches, and %d connections", lasted.Round(time.Second), sent.requests, sent.watches, sent.connections)
	most := requestsAtOnce + requestsPerSecond*lasted.Seconds()
	require.LessOrEqual(m.t, float64(max(sent.requests, sent.connections)), most)
	r.recovers()
	unknown := 0
	for _, status := range conditions() {
		require.NotEqual(m.t, string(corev1.ConditionFalse), status, "the node does not flap")
		if status == string(corev1.ConditionUnknown) {
			unknown++
		}
	}
	if f.silent && lasted > unreachable-10*time.Second {
		require.LessOrEqual(m.t, unknown, 1, "the node does not flap")
		return
	}
	require.Zero(m.t, unknown, "the node does not flap")
}

// recovers waits until the API server knows all that has happened.
func (r *round) recovers() {
	r.t.Helper()
	began := time.Now()
	r.eventually(2*timeout, "get", "pod", r.victim, "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")("1 true")
	r.eventually(2*timeout, "get", "pod", r.once, "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].state.terminated.exitCode}")("Failed 3")
	r.eventually(2*timeout, "get", "deployment/web", "-o", "jsonpath={.status.readyReplicas}")(strconv.Itoa(r.pods))
	r.awaitNode()
	r.t.Logf("all is told %v after the end of it", time.Since(began).Round(10*time.Millisecond))
	require.Equal(r.t, r.before, r.steady(r.others), "no other container is restarted")
}

// traffic is what an agent has sent.
type traffic struct{ requests, watches, connections int }

func (m *member) sent() traffic {
	return traffic{m.proxy.Count(faultproxy.Match{}), m.proxy.Count(faultproxy.Match{Verb: "watch"}), m.proxy.Connections()}
}

// steady returns the containers of pods, by pod.
func (m *member) steady(pods []corev1.Pod) map[string]map[string]string {
	all := map[string]map[string]string{}
	for i := range pods {
		ran, _ := m.containers(pods[i].Name)
		all[pods[i].Name] = maps.Clone(ran)
	}
	return all
}

// observe notes how ready the node is, until the function that it returns is called: the statuses that the condition has had, in order.
func (m *member) observe() func() []string {
	done, stopped := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var seen []string
	look := func() {
		var node corev1.Node
		if m.Admin().Do(within(m.t, 10*time.Second), http.MethodGet, "/api/v1/nodes/n1", nil, &node) != nil {
			return // it is asked again
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
		for look(); ; look() {
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
