// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/volume/csi"
)

// ebs is a driver that registers on a node of zone a.
var ebs = csi.NodeInfo{Driver: "ebs.example", NodeID: "i-1", MaxVolumes: 25, Topology: map[string]string{"topology.ebs.example/zone": "a"}}

// clusterNode is a running ClusterNode on an API server in memory.
type clusterNode struct {
	*testing.T
	*csi.ClusterNode
	server *apiservertest.Server
}

// newClusterNode returns a clusterNode whose Node has labels, in a synctest bubble.
func newClusterNode(t *testing.T, labels map[string]string) *clusterNode {
	server := apiservertest.NewServer(apiservertest.Options{})
	require.NoError(t, server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels}}))
	source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1"})
	require.NoError(t, err)
	objects, err := source.Objects(apiserver.ObjectsOptions{})
	require.NoError(t, err)
	c := &clusterNode{T: t, ClusterNode: csi.NewClusterNode(objects, nil), server: server}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, c.ClusterNode.Run(ctx)) })
	synctest.Wait()
	t.Cleanup(func() { cancel(); wg.Wait(); server.Close() })
	return c
}

// awaitSlowRequest makes the API server respond again, but delays requests that match slow by 5 s. It returns when Run has sent such
// a request.
func (c *clusterNode) awaitSlowRequest(slow apiservertest.Match) {
	synctest.Wait()
	c.server.ForgetRequests()
	c.server.Inject(apiservertest.Fault{Match: slow, Times: 1, Delay: 5 * time.Second})
	c.server.SetUnavailable(false)
	for c.server.CountRequests(slow) == 0 {
		time.Sleep(100 * time.Millisecond)
	}
}

// nodeState returns the zone label and the annotation with the driver IDs of the Node.
func (c *clusterNode) nodeState() string {
	c.Helper()
	node, ok := apiservertest.Get[*corev1.Node](c.server, "", "n1")
	require.True(c, ok)
	return node.Labels["topology.ebs.example/zone"] + " " + node.Annotations[csi.AnnotationNodeID]
}

// csiNodeDrivers returns the names of the drivers in the CSINode.
func (c *clusterNode) csiNodeDrivers() (names []string) {
	node, _ := apiservertest.Get[*storagev1.CSINode](c.server, "", "n1")
	if node == nil {
		return nil
	}
	for i := range node.Spec.Drivers {
		names = append(names, node.Spec.Drivers[i].Name)
	}
	return names
}

func TestClusterNodeOfRegisteredDriverIsInBothObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterNode(t, nil)
		require.NoError(t, c.InstallDriver(t.Context(), ebs))
		require.Equal(t, `a {"ebs.example":"i-1"}`, c.nodeState())
		require.Equal(t, []string{"ebs.example"}, c.csiNodeDrivers())
		require.NoError(t, c.InstallDriver(t.Context(), ebs), "a second installation succeeds, as after a restart of the driver")
		require.Equal(t, []string{"ebs.example"}, c.csiNodeDrivers())
		require.NoError(t, c.UninstallDriver(t.Context(), "ebs.example"))
		require.Equal(t, "a ", c.nodeState(), "the zone label stays, because other drivers may use it")
		require.Empty(t, c.csiNodeDrivers())
		require.NoError(t, c.UninstallDriver(t.Context(), "ebs.example"))
	})
}

// Pods of a restarted agent can mount volumes of the driver without the API server.
func TestClusterNodeWithoutAPIServerAcceptsDriverAndWritesItLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterNode(t, nil)
		c.server.SetUnavailable(true)
		require.NoError(t, c.InstallDriver(t.Context(), ebs))
		time.Sleep(time.Minute)
		require.Equal(t, " ", c.nodeState())
		c.server.SetUnavailable(false)
		time.Sleep(11 * time.Second) // the longest pause between attempts, and the request
		require.Equal(t, `a {"ebs.example":"i-1"}`, c.nodeState())
		require.Equal(t, []string{"ebs.example"}, c.csiNodeDrivers())
	})
}

// The driver was deregistered before the API server returned.
func TestClusterNodeWritesNoDriverThatWasUninstalledMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterNode(t, nil)
		c.server.SetUnavailable(true)
		require.NoError(t, c.InstallDriver(t.Context(), ebs))
		require.Error(t, c.UninstallDriver(t.Context(), "ebs.example"), "an error makes the caller repeat the deregistration")
		c.server.SetUnavailable(false)
		time.Sleep(time.Minute)
		require.Equal(t, " ", c.nodeState())
		require.Empty(t, c.csiNodeDrivers())
	})
}

// The driver was deregistered during a request about it.
func TestClusterNodeUninstallDuringWriteRemovesDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterNode(t, nil)
		c.server.SetUnavailable(true)
		require.NoError(t, c.InstallDriver(t.Context(), ebs))
		c.awaitSlowRequest(apiservertest.Match{Verb: "get", Resource: "csinodes"}) // Run has written the Node, but not the CSINode
		require.NoError(t, c.UninstallDriver(t.Context(), "ebs.example"))
		time.Sleep(time.Minute)
		require.Equal(t, "a ", c.nodeState())
		require.Empty(t, c.csiNodeDrivers())
	})
}

// Another version of the driver has registered during a request about the old version.
func TestClusterNodeInstallDuringWriteOfOlderInfoWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterNode(t, nil)
		c.server.SetUnavailable(true)
		require.NoError(t, c.InstallDriver(t.Context(), ebs))
		c.awaitSlowRequest(apiservertest.Match{Verb: "patch", Resource: "nodes"})
		moved := ebs
		moved.NodeID = "i-2"
		require.NoError(t, c.InstallDriver(t.Context(), moved))
		time.Sleep(time.Minute)
		require.Equal(t, `a {"ebs.example":"i-2"}`, c.nodeState())
	})
}

// A request that hangs delays InstallDriver no longer than its context, and the driver is accepted.
func TestClusterNodeInstallWhileAPIServerHangsEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterNode(t, nil)
		remove := c.server.Hang("get", "nodes")
		for _, name := range []string{"ebs.example", "efs.example"} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			began := time.Now()
			require.NoError(t, c.InstallDriver(ctx, csi.NodeInfo{Driver: name, NodeID: "1"}))
			require.LessOrEqual(t, time.Since(began), 5*time.Second)
			cancel()
		}
		remove()
		time.Sleep(2 * time.Minute)
		require.ElementsMatch(t, []string{"ebs.example", "efs.example"}, c.csiNodeDrivers())
	})
}

// A permanent error is returned, so that the registration of the driver fails.
func TestClusterNodeReturnsRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string
		code   int
		err    string
	}{
		"API server forbids the request": {nil, http.StatusForbidden, "get nodes n1: "},
		"Node is in another zone":        {map[string]string{"topology.ebs.example/zone": "b"}, 0, `label topology.ebs.example/zone is "b", must be "a"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClusterNode(t, test.labels)
				if test.code != 0 {
					c.server.Fail("", "nodes", test.code)
				}
				require.ErrorContains(t, c.InstallDriver(t.Context(), ebs), test.err)
				requests := c.server.CountRequests(apiservertest.Match{})
				time.Sleep(time.Hour)
				require.Equal(t, requests, c.server.CountRequests(apiservertest.Match{}), "Run sends no request after a refusal")
				require.Empty(t, c.csiNodeDrivers())
			})
		})
	}
}

func TestNewClusterNodeWithoutObjectsPanicsWithTheirName(t *testing.T) {
	require.PanicsWithValue(t, "csi.NewClusterNode: argument objects is nil: required, such as a *apiserver.Objects", func() { csi.NewClusterNode(nil, nil) })
}
