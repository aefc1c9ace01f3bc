// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// clusterTimeout is the longest wait for something that the control plane does after its own time-outs and back-offs.
const clusterTimeout = 3 * time.Minute

// cluster is a node whose static pods are a control plane as kubeadm has written it.
type cluster struct {
	*node
	*controlplane.Cluster

	agent      *exetest.Process
	kubeconfig string
}

// parts are the static pods of a control plane.
func parts() []string {
	return []string{controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager, controlplane.Scheduler}
}

// newCluster starts an agent and gives it the manifests of kubeadm.
func newCluster(t *testing.T) *cluster {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("minutes, and programs that take long to build: `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
	n := newNode(t)
	require.NoError(t, n.lab.Import(t.Context(), append(parts(), controlplane.Kubectl)...))
	// The bridge of the lab has an address that others reach, as soon as there is a pod on it.
	c := &cluster{node: n, Cluster: controlplane.PrepareKubeadm(t, "n1", n.lab.Subnet().Addr().Next())}
	c.kubeconfig = filepath.Join(c.Root, "etc", "kubernetes", "kubelet.conf") // what kubeadm gives to a kubelet
	n.manifests.Write("first.yaml", podYAML("first", sleeper))
	c.restart()
	n.awaitRunning(timeout, "first-n1")

	began := time.Now()
	for name, manifest := range c.Manifests {
		n.manifests.Write(name, manifest)
	}
	c.awaitReady()
	t.Logf("/readyz is ok %v after the manifests were written", time.Since(began).Round(10*time.Millisecond))
	c.awaitParts()
	t.Logf("all four pods are ready after %v", time.Since(began).Round(10*time.Millisecond))
	return c
}

// restart kills the agent, if there is one, and starts another.
func (c *cluster) restart() {
	if c.agent != nil {
		c.agent.Kill()
	}
	c.agent = c.start(map[string]any{"kubeconfig": c.kubeconfig, "registerNode": false, "nodeIPs": []string{c.lab.Subnet().Addr().Next().String()}})
}

func (c *cluster) awaitReady() {
	c.t.Helper()
	exetest.Eventually(c.t, clusterTimeout, func() error { return c.Admin().CheckReady(within(c.t, 10*time.Second)) })
}

// awaitParts waits until the last that the agent said of each part is that it is ready.
func (c *cluster) awaitParts() {
	c.t.Helper()
	exetest.Eventually(c.t, clusterTimeout, func() error {
		for _, part := range parts() {
			last := ""
			for line := range strings.Lines(c.agent.Output()) {
				if strings.Contains(line, "msg=status") && strings.Contains(line, "pod="+part+"-n1 ") {
					last = line
				}
			}
			if !strings.Contains(last, `summary="1/1 `) {
				return fmt.Errorf("%s is not ready: %s", part, last)
			}
		}
		return nil
	})
}

// get reads an object, do makes a call that has to succeed.
func (c *cluster) get(path string, out any) error {
	return c.Admin().Do(within(c.t, 10*time.Second), http.MethodGet, path, nil, out)
}

func (c *cluster) do(method, path string, in, out any) {
	c.t.Helper()
	require.NoError(c.t, c.Admin().Do(within(c.t, timeout), method, path, in, out))
}

// ran returns the containers of the pods, by pod.
func (c *cluster) ran(pods ...string) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, pod := range pods {
		all[pod], _ = c.containers(pod + "-n1")
	}
	return all
}

// sandboxes returns the sandboxes of a pod that run. While a changed pod replaces one there may be two.
func (c *cluster) sandboxes(pod string) (ids []string, err error) {
	snap, err := c.client.List(within(c.t, 10*time.Second))
	for _, s := range snap.Sandboxes {
		if s.Pod.Name == pod+"-n1" && s.State == cri.SandboxReady {
			ids = append(ids, s.ID)
		}
	}
	return ids, err
}

// allSandboxes returns the sandboxes of all pods that are named.
func (c *cluster) allSandboxes(pods ...string) map[string][]string {
	c.t.Helper()
	all := map[string][]string{}
	for _, pod := range pods {
		ids, err := c.sandboxes(pod)
		require.NoError(c.t, err)
		require.Len(c.t, ids, 1, pod)
		all[pod] = ids
	}
	return all
}

// addFlag adds a flag to the command of a part, and waits until its pod has been replaced.
func (c *cluster) addFlag(part, flag string) {
	c.t.Helper()
	before := c.allSandboxes(part)[part][0]
	file, command := part+".yaml", "    - "+part+"\n"
	require.Contains(c.t, c.Manifests[file], command)
	c.Manifests[file] = strings.Replace(c.Manifests[file], command, command+"    - "+flag+"\n", 1)
	c.manifests.Write(file, c.Manifests[file])
	exetest.Eventually(c.t, clusterTimeout, func() error {
		now, err := c.sandboxes(part)
		if err == nil && (len(now) != 1 || now[0] == before) {
			err = fmt.Errorf("the sandboxes of %s are %s, and %s before", part, now, before)
		}
		return err
	})
}

const (
	pathMaps     = "/api/v1/namespaces/default/configmaps"
	pathPods     = "/api/v1/namespaces/default/pods"
	pathAccounts = "/api/v1/namespaces/default/serviceaccounts"
)

// keep stores an object that kept looks for.
func (c *cluster) keep() {
	made := corev1.ConfigMap{Data: map[string]string{"color": "red"}}
	made.Name = "kept"
	c.do(http.MethodPost, pathMaps, made, nil)
}

func (c *cluster) kept() {
	c.t.Helper()
	c.awaitReady()
	var found corev1.ConfigMap
	exetest.Eventually(c.t, timeout, func() error { return c.get(pathMaps+"/kept", &found) })
	require.Equal(c.t, map[string]string{"color": "red"}, found.Data)
}

// The four static pods that kubeadm writes run under this agent, with nothing in their manifests changed but ports, paths of
// the host and images. What they store outlives deaths of the agent, which touch no container, and changed manifests, each of
// which replaces its pod and no other. Beside them a pod is known to the API server by a token that the agent has had issued.
func TestClusterOfKubeadm(t *testing.T) {
	c := newCluster(t)
	c.keep()
	app := c.startApp()
	first := app.token("long")
	app.authenticates("long")
	app.authenticates("short")

	pods := append(parts(), "app", "first")
	before := c.ran(pods...)
	var restarted time.Time
	for range 5 {
		time.Sleep(rand.N(3 * time.Second)) // the moment of the crash
		restarted = time.Now()
		c.restart()
	}
	c.awaitParts()
	c.kept()
	require.Equal(t, before, c.ran(pods...), "no death of the agent touches a container")
	app.awaitOther("long", first, timeout) // the new agent has another, and the one before lasts until it has expired
	app.authenticates("long")

	others := []string{controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager, "app", "first"}
	before = c.ran(others...)
	c.addFlag(controlplane.Scheduler, "--v=1")
	c.awaitParts()
	require.Equal(t, before, c.ran(others...), "no other pod is touched by a change of the scheduler")

	for part, flag := range map[string]string{controlplane.Etcd: "--max-txn-ops=129", controlplane.APIServer: "--max-requests-inflight=401"} {
		others := slices.DeleteFunc(slices.Clone(pods), func(pod string) bool { return pod == part })
		before := c.allSandboxes(others...)
		c.addFlag(part, flag)
		c.kept()
		require.Equal(t, before, c.allSandboxes(others...), "no other pod is replaced by a change of %s", part)
	}
	c.awaitParts()

	app.refreshes(restarted)
	app.dies()
	c.end(c.agent)
}
