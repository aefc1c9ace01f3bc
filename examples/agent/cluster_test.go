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

// clusterTimeout is the longest wait for the control plane, which has time-outs and back-offs of its own.
const clusterTimeout = 3 * time.Minute

// cluster is a node whose static pods are the control plane of kubeadm.
type cluster struct {
	*node
	*controlplane.Cluster

	agent      *exetest.Process
	kubeconfig string
}

// parts returns the names of the static pods of a control plane.
func parts() []string {
	return []string{controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager, controlplane.Scheduler}
}

// newCluster starts an agent with the manifests of kubeadm.
func newCluster(t *testing.T) *cluster {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("takes minutes and needs programs that take long to build: `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
	n := newNode(t)
	require.NoError(t, n.lab.Import(t.Context(), append(parts(), controlplane.Kubectl)...))
	// The address of the lab's bridge is reachable as soon as a pod is attached to it.
	c := &cluster{node: n, Cluster: controlplane.PrepareKubeadm(t, "n1", n.lab.Subnet().Addr().Next())}
	c.kubeconfig = filepath.Join(c.Root, "etc", "kubernetes", "kubelet.conf") // the kubeconfig that kubeadm writes for a kubelet
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

// restart kills the agent, if one runs, and starts another.
func (c *cluster) restart() {
	if c.agent != nil {
		c.agent.Kill()
	}
	c.agent = c.start(map[string]any{"kubeconfig": c.kubeconfig, "tokensOnly": true, "nodeIPs": []string{c.lab.Subnet().Addr().Next().String()}})
}

func (c *cluster) awaitReady() {
	c.t.Helper()
	exetest.Eventually(c.t, clusterTimeout, func() error { return c.Admin().CheckReady(within(c.t, 10*time.Second)) })
}

// awaitParts waits until the last status line of each part reports it as ready.
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

// get reads an object.
func (c *cluster) get(path string, out any) error {
	return c.Admin().Do(within(c.t, 10*time.Second), http.MethodGet, path, nil, out)
}

func (c *cluster) do(method, path string, in, out any) {
	c.t.Helper()
	require.NoError(c.t, c.Admin().Do(within(c.t, timeout), method, path, in, out))
}

// containersByPod returns the containers of pods, by pod.
func (c *cluster) containersByPod(pods ...string) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, pod := range pods {
		all[pod], _ = c.containers(pod + "-n1")
	}
	return all
}

// readySandboxes returns the ready sandboxes of a pod. It may have two while a changed pod is replaced.
func (c *cluster) readySandboxes(pod string) (ids []string, err error) {
	snap, err := c.client.List(within(c.t, 10*time.Second))
	for _, s := range snap.Sandboxes {
		if s.Pod.Name == pod+"-n1" && s.State == cri.SandboxReady {
			ids = append(ids, s.ID)
		}
	}
	return ids, err
}

// allSandboxes returns the one ready sandbox of each pod.
func (c *cluster) allSandboxes(pods ...string) map[string][]string {
	c.t.Helper()
	all := map[string][]string{}
	for _, pod := range pods {
		ids, err := c.readySandboxes(pod)
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
		now, err := c.readySandboxes(part)
		if err == nil && (len(now) != 1 || now[0] == before) {
			err = fmt.Errorf("the sandboxes of %s are %s, and were %s", part, now, before)
		}
		return err
	})
}

const (
	pathMaps     = "/api/v1/namespaces/default/configmaps"
	pathPods     = "/api/v1/namespaces/default/pods"
	pathAccounts = "/api/v1/namespaces/default/serviceaccounts"
)

// createKeptObject stores the object that requireKeptObject reads.
func (c *cluster) createKeptObject() {
	made := corev1.ConfigMap{Data: map[string]string{"color": "red"}}
	made.Name = "kept"
	c.do(http.MethodPost, pathMaps, made, nil)
}

func (c *cluster) requireKeptObject() {
	c.t.Helper()
	c.awaitReady()
	var found corev1.ConfigMap
	exetest.Eventually(c.t, timeout, func() error { return c.get(pathMaps+"/kept", &found) })
	require.Equal(c.t, map[string]string{"color": "red"}, found.Data)
}

// The control plane of kubeadm runs as four static pods of this agent. Only ports, host paths and images in its manifests
// are changed. Its data survives restarts of the agent, which affect no container, and changed manifests, which replace only
// their own pod. The API server authenticates a pod by a token that the agent has requested.
func TestClusterOfKubeadm(t *testing.T) {
	c := newCluster(t)
	c.createKeptObject()
	app := c.startApp()
	first := app.readToken("long")
	app.checkIdentity("long")
	app.checkIdentity("short")

	pods := append(parts(), "app", "first")
	before := c.containersByPod(pods...)
	var restarted time.Time
	for range 5 {
		time.Sleep(rand.N(3 * time.Second)) // the agent is killed at a random moment
		restarted = time.Now()
		c.restart()
	}
	c.awaitParts()
	c.requireKeptObject()
	require.Equal(t, before, c.containersByPod(pods...), "no container is restarted when the agent is killed")
	app.awaitNewToken("long", first, timeout) // the new agent requests another token, and the old one stays valid until it expires
	app.checkIdentity("long")

	others := []string{controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager, "app", "first"}
	before = c.containersByPod(others...)
	c.addFlag(controlplane.Scheduler, "--v=1")
	c.awaitParts()
	require.Equal(t, before, c.containersByPod(others...), "no other pod is affected by a change of the scheduler")

	for part, flag := range map[string]string{controlplane.Etcd: "--max-txn-ops=129", controlplane.APIServer: "--max-requests-inflight=401"} {
		others := slices.DeleteFunc(slices.Clone(pods), func(pod string) bool { return pod == part })
		before := c.allSandboxes(others...)
		c.addFlag(part, flag)
		c.requireKeptObject()
		require.Equal(t, before, c.allSandboxes(others...), "no other pod is replaced after a change of %s", part)
	}
	c.awaitParts()

	app.awaitRefresh(restarted)
	app.checkRemoval()
	c.drain(c.agent)
}
