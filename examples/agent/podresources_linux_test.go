// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// resourcesClient calls List of a podresources socket, and counts the responses.
type resourcesClient struct {
	t                 *testing.T
	client            podresourcesv1.PodResourcesListerClient
	accepted, refused int
	held              map[string]map[string]bool // devices by name of the pod, over all responses
}

// list calls List once, and requires that each pod has one device, which no other pod of the response has.
func (c *resourcesClient) list() {
	response, err := c.client.List(c.t.Context(), &podresourcesv1.ListPodResourcesRequest{})
	if status.Code(err) == codes.ResourceExhausted {
		c.refused++
		return
	}
	if !assert.NoError(c.t, err) {
		return
	}
	c.accepted++
	holders := map[string]string{}
	for _, pod := range response.GetPodResources() {
		for _, container := range pod.GetContainers() {
			if !assert.Len(c.t, container.GetDevices(), 1, "pod %s is listed without its device", pod.GetName()) {
				continue
			}
			for _, id := range container.GetDevices()[0].GetDeviceIds() {
				assert.Empty(c.t, holders[id], "%s and %s hold device %s", holders[id], pod.GetName(), id)
				holders[id] = pod.GetName()
				if c.held[pod.GetName()] == nil {
					c.held[pod.GetName()] = map[string]bool{}
				}
				c.held[pod.GetName()][id] = true
			}
		}
	}
}

// A client that calls List 1,000 times a second, while pods come and go, sees no pod without its device. The limit of the kubelet, 100 calls a
// second, holds.
func TestIntegrationPodResourcesWhilePodsComeAndGo(t *testing.T) {
	n := newGadgetNode(t, "a", "b", "c", "d")
	a, plugin := n.start(nil), n.startPlugin()
	a.AwaitLine(timeout, "device plugin is connected", "example.com/gadget")
	exetest.Eventually(t, timeout, func() error {
		_, err := os.Lstat(filepath.Join(n.state, "pod-resources", "kubelet.sock"))
		return err
	})
	conn, err := grpc.NewClient("unix://"+filepath.Join(n.state, "pod-resources", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	c := &resourcesClient{t: t, client: podresourcesv1.NewPodResourcesListerClient(conn), held: map[string]map[string]bool{}}
	stop := make(chan struct{})
	var calls sync.WaitGroup
	started := time.Now()
	calls.Go(func() {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				c.list()
			}
		}
	})
	end := sync.OnceFunc(func() { close(stop); calls.Wait() })
	defer end()
	const pods = 5
	name := func(i int) string { return fmt.Sprintf("p%d", i) }
	for i := range pods {
		n.manifests.Write(name(i)+".yaml", limitGadgets(podYAML(name(i), sleeper), 1))
		n.awaitRunning(2*timeout, name(i)+"-n1")
		if i >= 2 {
			n.manifests.Remove(name(i-2) + ".yaml")
			a.AwaitLine(timeout, "pod is removed", name(i-2)+"-n1")
		}
	}
	end()
	seconds := time.Since(started).Seconds()
	t.Logf("%.0f calls a second, %.0f accepted a second", float64(c.accepted+c.refused)/seconds, float64(c.accepted)/seconds)
	require.Len(t, c.held, pods, "each pod was listed")
	for pod, devices := range c.held {
		require.Len(t, devices, 1, "pod %s held several devices", pod)
	}
	require.Positive(t, c.refused)
	require.Less(t, float64(c.accepted), 100*seconds+50)
	plugin.Kill()
	n.drain(a)
}
