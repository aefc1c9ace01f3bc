// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// The two images of the scenarios have the same layers, so that no pull delays a change of the image.
const firstImage, secondImage = "nodeagent.test/busybox:1", "nodeagent.test/busybox:2"

// A pod on the agent and a pod on kubelet 1.37.1, on the same machine with the same configuration, differ only as the
// scenarios of testdata/pods list. Compared are the published statuses in their order, the events, the output of containers,
// the mirror pods and the links to logs. A listed difference that no longer exists is an error, too.
func TestClusterPodsBesideKubelet(t *testing.T) {
	sides := newSides(t)
	paths, err := filepath.Glob("testdata/pods/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	var scenarios []scenario
	for _, path := range paths {
		scenarios = append(scenarios, readScenario(t, path))
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallelScenarios) // package testing would run only as many as there are processors
	for _, s := range scenarios {
		if !s.alone {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				t.Run(s.name, func(t *testing.T) { compareScenario(t, s, sides) })
			})
		}
	}
	wg.Wait()
	for _, s := range scenarios {
		if s.alone {
			t.Run(s.name, func(t *testing.T) { compareScenario(t, s, sides) })
		}
	}
}

// parallelScenarios is the number of scenarios that run at a time. They spend most of their time in grace periods and
// back-offs.
const parallelScenarios = 8

// newSides starts a control plane with an agent and a kubelet as its nodes.
func newSides(t *testing.T) [2]side {
	fields := map[string]any{
		"maxPods": 60, "podsPerCore": 0, "clusterDomain": "cluster.local", "clusterDNS": []string{"10.96.0.10"},
		"evictionHard": map[string]string{"memory.available": "50Mi", "nodefs.available": "1%"},
	}
	config := maps.Clone(fields)
	config["nodeLabels"], config["containerLogsDir"] = map[string]string{peerLabel: peerValue}, containerLinks
	m := newMember(t, config)
	m.apply(fmt.Sprintf(podOnNodeYAML, "n1")) // then the bridge has its address
	m.eventually(timeout, "get", "pod", "pod-of-n1", "-o", "jsonpath={.status.phase}")("Running")
	m.do("delete", "pod", "pod-of-n1", "--timeout=60s")
	tagImage(t, m.lab)

	kubelet, directory := lab.StartPrivate(t), exetest.NewDir(t)
	tagImage(t, kubelet)
	group := *m.node
	group.root = "/nodeagent-test-kubelet-" + filepath.Base(kubelet.StateDir())
	group.createCgroupRoot()
	fields["staticPodPath"], fields["cgroupsPerQOS"], fields["cgroupRoot"] = directory.Path, true, group.root
	kubeconfig, err := m.Kubeconfig("system:node:n2", "system:nodes")
	require.NoError(t, err)
	startKubeletOn(t, kubelet, fields, "--kubeconfig="+kubeconfig, "--node-ip="+m.lab.Subnet().Addr().Next().String(), "--node-labels="+peerLabel+"="+peerValue)
	m.eventually(clusterTimeout, "get", "node", "n2", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)("True")
	t.Cleanup(func() { // remaining pods have mounts
		m.agent.Kill()
		unmountBelow(t, m.state)
	})
	pods := startRecorder(t, m.Admin())
	return [2]side{{m, "n1", m.manifests, pods}, {m, "n2", directory, pods}}
}

// tagImage gives the image of the lab its second name.
func tagImage(t *testing.T, l *lab.Lab) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(l.BinDir(), "ctr"), "--address", strings.TrimPrefix(l.Endpoint(), "unix://"), "--namespace", "k8s.io",
		"images", "tag", firstImage, secondImage).CombinedOutput()
	require.NoError(t, err, string(out))
}

// compareScenario plays a scenario on both nodes at the same time, and compares the lines of both.
func compareScenario(t *testing.T, s scenario, sides [2]side) {
	begun := time.Now()
	m := sides[0].member.forTest(t)
	if _, later := s.files["namespace"]; !later {
		prepareNamespace(t, m, s.name)
	}
	var actors [2]*actor
	var wg sync.WaitGroup
	for i := range sides {
		own := sides[i]
		own.member = m
		actors[i] = &actor{side: own, s: s, notes: map[string]string{}, aliases: map[string]bool{}}
		wg.Go(actors[i].play)
	}
	wg.Wait()
	t.Cleanup(func() { actors[0].cleanUp(); actors[1].cleanUp() })

	var err error
	var stableSince time.Time // since when all differences are listed; zero: not all are
	for deadline := time.Now().Add(12 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = compareDifferences(s.name, s.files["differences"]+incidentalDifferences, differences(actors[0].lines(), actors[1].lines())); err != nil {
			stableSince = time.Time{}
		} else if stableSince.IsZero() {
			stableSince = time.Now()
		} else if time.Since(stableSince) > settleTime {
			break
		}
	}
	t.Logf("%s took %v; lines of the kubelet:\n%s", s.name, time.Since(begun).Round(100*time.Millisecond),
		strings.Join(slices.Sorted(maps.Keys(actors[1].lines())), "\n"))
	if err != nil {
		t.Logf("lines of the agent:\n%s", strings.Join(slices.Sorted(maps.Keys(actors[0].lines())), "\n"))
	}
	require.NoError(t, err)
}

// incidentalDifferences are optional differences of all scenarios, in the form of their file "differences". A status that
// the kubelet skips is listed by both forms of a line, so that an agent that skips the status fails.
const incidentalDifferences = `
?kubelet: *: at last resources.limits.memory: 9007199254740988Ki # it reads the cgroup of a pod whose limits are removed at its end
?agent: *: at last resources.requests.cpu: * # the kubelet's have none if the cgroup of the pod is gone when it is read for the last time
?agent: *: at last *ontainerStatuses[*].user.linux.* # containerd leaves it out for a container that is being removed, when the kubelet reads its status for the last time
?kubelet: *: event Normal TaintManagerEviction -: * # a controller's, for a node that was not ready for a moment
?kubelet: *: event Warning FailedMount -: MountVolume.SetUp failed for volume "kube-api-access" : object * not registered # it may begin to mount before it rejects a pod
?agent: *: phase: Pending > Running > Succeeded # the newest status is sent: a busy kubelet may send none until then
?kubelet: *: phase: Pending > Succeeded # the newest status is sent: a busy kubelet may send none until then
?agent: *: container main: waiting ContainerCreating > running > terminated Completed 0 # the newest status is sent: a busy kubelet may send none until then
?kubelet: *: container main: ((waiting ContainerCreating > ))((running > ))terminated Completed 0 # the newest status is sent: a busy kubelet may send none until then
?agent: *: ready main: false > true > false # the newest status is sent: a busy kubelet may send none until then
?kubelet: *: ready main: ((false > ))((true > ))false # the newest status is sent: a busy kubelet may send none until then
?agent: *: condition *Ready: False ContainersNotReady containers with unready status: [main] > True > False PodCompleted # the newest status is sent: a busy kubelet may send none until then
?kubelet: *: condition *Ready: ((False ContainersNotReady containers with unready status: [main] > ))((True > ))False PodCompleted # the newest status is sent: a busy kubelet may send none until then
?agent: *: container first: waiting PodInitializing > running > terminated Completed 0 # the newest status is sent: a busy kubelet may send none until then
?kubelet: *: container first: ((waiting PodInitializing > ))((running > ))terminated Completed 0 # the newest status is sent: a busy kubelet may send none until then
?agent: *: ready first: false > true # the newest status is sent: a busy kubelet may send none until then
?kubelet: *: ready first: true # the newest status is sent: a busy kubelet may send none until then
?agent: *: condition Initialized: False ContainersNotInitialized containers with incomplete status: [first] > True # the newest status is sent: a busy kubelet may send none until then
?kubelet: *: condition Initialized: True # the newest status is sent: a busy kubelet may send none until then
?agent: *: condition PodReadyToStartContainers: False PodSandboxNotReady > True(( > False PodSandboxNotReady)) # the newest status is sent: a busy kubelet may send none until then
?kubelet: *: condition PodReadyToStartContainers: ((False PodSandboxNotReady > ))((True > ))False PodSandboxNotReady # the newest status is sent: a busy kubelet may send none until then
?kubelet: *: condition PodReadyToStartContainers: True # the newest status is sent: a busy kubelet may send none until then
?agent: *: event Warning FailedMount -: MountVolume.SetUp failed for volume "kube-api-access" : watch configmaps */kube-root-ca.crt: no answer within 2s # of a busy API server
`

// settleTime is how long the lines of both nodes must differ only as listed.
const settleTime = 2 * time.Second

// prepareNamespace creates a namespace, and waits until pods can be created in it.
func prepareNamespace(t *testing.T, m *member, name string) {
	t.Helper()
	require.NoError(t, createNamespace(m, name))
	for _, path := range []string{"/serviceaccounts/default", "/configmaps/kube-root-ca.crt"} {
		exetest.Eventually(t, timeout, func() error {
			return m.Admin().Do(within(t, timeout), http.MethodGet, "/api/v1/namespaces/"+name+path, nil, nil)
		})
	}
}

func createNamespace(m *member, name string) error {
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
	return m.Admin().Do(within(m.t, timeout), http.MethodPost, "/api/v1/namespaces", body, nil)
}

// stepLine begins the line of a failed step. It is a difference even if the step fails on both nodes, because the scenario
// is incomplete.
const stepLine = "step "

// differences returns the lines that only one node has, and the failed steps.
func differences(agent, kubelet map[string]string) map[string]string {
	differ := map[string]string{}
	for line := range union(agent, kubelet) {
		failed := strings.HasPrefix(line, stepLine)
		if agent[line] != "" && (failed || kubelet[line] == "") {
			differ["agent: "+line] = "the kubelet has no such line"
		}
		if kubelet[line] != "" && (failed || agent[line] == "") {
			differ["kubelet: "+line] = "the agent has no such line"
		}
	}
	return differ
}

// cleanUp removes the manifests and the pods of a scenario.
func (a *actor) cleanUp() {
	paths, _ := filepath.Glob(filepath.Join(a.manifests.Path, a.s.name+"-*"))
	for _, path := range paths {
		a.manifests.Remove(filepath.Base(path))
	}
	for alias := range a.aliases {
		_ = a.execute([]string{"delete", alias, "0"}, "")
	}
}
