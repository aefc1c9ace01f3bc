// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/retryqueue"
	"github.com/seed81659283/nodeagent/internal/runonce"
)

// NodeObjects edits the Node and the CSINode object of this node. *apiserver.Objects is one.
type NodeObjects interface {
	// EditNode calls edit with the Node, and writes the Node if edit reports a change. An error of edit is returned.
	EditNode(ctx context.Context, edit func(*corev1.Node) (changed bool, err error)) error
	// EditCSINode does the same with the CSINode, which it creates.
	EditCSINode(ctx context.Context, edit func(*storagev1.CSINode) (changed bool)) error
}

// ClusterNode writes the CSI drivers of this node to its Node and CSINode objects. It is a Node for [Options.Node]. A driver that registers while
// the API server is away is used at once, so that pods that ran before are started again with its volumes, and is written by Run later.
type ClusterNode struct {
	objects NodeObjects
	log     *slog.Logger
	later   *retryqueue.Queue[string, NodeInfo] // by driver
	guard   runonce.Guard
	writing chan struct{} // has a token while the objects are written: a request of Run for an older report must not end after a newer one
}

// NewClusterNode returns a ClusterNode. It panics if objects is nil. A nil logger discards.
func NewClusterNode(objects NodeObjects, log *slog.Logger) *ClusterNode {
	required.MustArgs("csi.NewClusterNode", required.Arg{Name: "objects", Value: objects, Hint: "a *apiserver.Objects"})
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &ClusterNode{objects: objects, log: log, writing: make(chan struct{}, 1)}
	c.later = retryqueue.New[string](func(ctx context.Context, info *NodeInfo) bool {
		if c.lock(ctx) != nil {
			return false
		}
		defer c.unlock()
		if !c.later.Pending(info.Driver, info) {
			return true // Install or Uninstall was called meanwhile
		}
		refused, err := c.install(ctx, *info)
		if err != nil {
			c.log.Warn("CSI driver is not in the cluster", "driver", info.Driver, "error", err)
		}
		return err == nil || refused // until the driver registers itself again
	})
	return c
}

// Run writes the drivers that could not be written at once, until ctx ends, and returns nil then. A second call returns an error.
func (c *ClusterNode) Run(ctx context.Context) error {
	if err := c.guard.Begin(); err != nil {
		return fmt.Errorf("csi.ClusterNode: %w", err)
	}
	defer c.guard.End()
	return c.later.Run(ctx)
}

// Install adds a driver to the objects. Without an answer of the API server it returns nil and leaves that to Run.
func (c *ClusterNode) Install(ctx context.Context, info NodeInfo) error {
	c.later.Remove(info.Driver)
	refused, err := c.installNow(ctx, info)
	if err == nil || refused || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown { // the API server has answered
		return err
	}
	c.log.Warn("CSI driver: the cluster is told later", "driver", info.Driver, "error", err)
	c.guard.Require("csi.ClusterNode", c.log, nil)
	c.later.Put(info.Driver, &info)
	return nil
}

// installNow adds a driver to the objects once no other driver is written to them.
func (c *ClusterNode) installNow(ctx context.Context, info NodeInfo) (refused bool, err error) {
	if err := c.lock(ctx); err != nil {
		return false, err
	}
	defer c.unlock()
	return c.install(ctx, info)
}

// lock waits until no goroutine writes the objects.
func (c *ClusterNode) lock(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *ClusterNode) unlock() { <-c.writing }

// install adds a driver to the objects, and reports whether the Node refuses the driver. The objects are locked.
func (c *ClusterNode) install(ctx context.Context, info NodeInfo) (refused bool, err error) {
	err = c.objects.EditNode(ctx, func(node *corev1.Node) (bool, error) {
		changed, err := info.AddToNode(node)
		refused = err != nil
		return changed, err
	})
	if err != nil {
		return refused, err
	}
	return false, c.objects.EditCSINode(ctx, func(node *storagev1.CSINode) bool { return info.AddToCSINode(node) })
}

// Uninstall removes a driver from the objects.
func (c *ClusterNode) Uninstall(ctx context.Context, driver string) error {
	c.later.Remove(driver)
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	err := c.objects.EditCSINode(ctx, func(node *storagev1.CSINode) bool { return RemoveFromCSINode(node, driver) })
	if err != nil {
		return err
	}
	return c.objects.EditNode(ctx, func(node *corev1.Node) (bool, error) { return RemoveFromNode(node, driver) })
}
