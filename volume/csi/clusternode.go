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

// NodeObjects edits the Node and CSINode objects of this node. *apiserver.Objects implements it.
type NodeObjects interface {
	// EditNode calls edit with the Node, and updates the object if edit reports a change. It returns the error of edit.
	EditNode(ctx context.Context, edit func(*corev1.Node) (changed bool, err error)) error
	// EditCSINode calls edit with the CSINode, which it creates if necessary, and updates the object if edit reports a change.
	EditCSINode(ctx context.Context, edit func(*storagev1.CSINode) (changed bool)) error
}

// ClusterNode is a [NodeUpdater] that writes CSI drivers to the Node and CSINode objects of this node. If the API server is
// unavailable when a driver registers, Run writes the objects later. The driver is usable at once, so that pods of a restarted
// agent can start.
type ClusterNode struct {
	objects NodeObjects
	log     *slog.Logger
	retries *retryqueue.Queue[string, NodeInfo] // by driver name
	guard   runonce.Guard
	writing chan struct{} // semaphore for one writer: a delayed write of Run must not overwrite a newer write
}

// NewClusterNode returns a ClusterNode that edits the Node and CSINode objects of the node. It panics if objects is nil. If
// log is nil, nothing is logged.
func NewClusterNode(objects NodeObjects, log *slog.Logger) *ClusterNode {
	required.MustArgs("csi.NewClusterNode", required.Arg{Name: "objects", Value: objects, Hint: "a *apiserver.Objects"})
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &ClusterNode{objects: objects, log: log, writing: make(chan struct{}, 1)}
	c.retries = retryqueue.New[string](func(ctx context.Context, info *NodeInfo) bool {
		if c.lockObjects(ctx) != nil {
			return false
		}
		defer c.unlockObjects()
		if !c.retries.Pending(info.Driver, info) {
			return true // InstallDriver or UninstallDriver was called since
		}
		refused, err := c.writeObjects(ctx, *info)
		if err != nil {
			c.log.Warn("cannot write CSI driver to Node and CSINode", "driver", info.Driver, "error", err)
		}
		return err == nil || refused // a refused driver is not retried until it registers again
	})
	return c
}

// Run repeats the writes to the Node and CSINode objects that failed in InstallDriver, until they succeed. It returns nil
// when ctx ends. A second call returns an error.
func (c *ClusterNode) Run(ctx context.Context) error {
	if err := c.guard.Begin(); err != nil {
		return fmt.Errorf("csi.ClusterNode: %w", err)
	}
	defer c.guard.End()
	return c.retries.Run(ctx)
}

// InstallDriver writes the driver to the Node and CSINode objects. If the API server is unavailable, it logs the error,
// leaves the write to Run and returns nil.
func (c *ClusterNode) InstallDriver(ctx context.Context, info NodeInfo) error {
	c.retries.Remove(info.Driver)
	refused, err := c.lockAndInstall(ctx, info)
	if err == nil || refused || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown { // the API server has responded
		return err
	}
	c.log.Warn("API server is unavailable: CSI driver is written to Node and CSINode later", "driver", info.Driver, "error", err)
	c.guard.Require("csi.ClusterNode", c.log, nil)
	c.retries.Put(info.Driver, &info)
	return nil
}

// lockAndInstall writes the driver to the Node and CSINode objects, after concurrent writes. refused reports that a retry would
// not help.
func (c *ClusterNode) lockAndInstall(ctx context.Context, info NodeInfo) (refused bool, err error) {
	if err := c.lockObjects(ctx); err != nil {
		return false, err
	}
	defer c.unlockObjects()
	return c.writeObjects(ctx, info)
}

// lockObjects blocks until no other goroutine writes the Node and CSINode objects, or ctx ends. The caller must call
// unlockObjects.
func (c *ClusterNode) lockObjects(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *ClusterNode) unlockObjects() { <-c.writing }

// writeObjects writes the driver to the Node and CSINode objects; the caller has called lockObjects. refused reports that a
// retry would not help.
func (c *ClusterNode) writeObjects(ctx context.Context, info NodeInfo) (refused bool, err error) {
	err = c.objects.EditNode(ctx, func(node *corev1.Node) (bool, error) {
		changed, err := info.AddToNode(node)
		refused = err != nil // such as a conflict of topology labels
		return changed, err
	})
	if err != nil {
		return refused, err
	}
	return false, c.objects.EditCSINode(ctx, func(node *storagev1.CSINode) bool { return info.AddToCSINode(node) })
}

// UninstallDriver removes the driver with this name from the CSINode and Node objects.
func (c *ClusterNode) UninstallDriver(ctx context.Context, driver string) error {
	c.retries.Remove(driver)
	if err := c.lockObjects(ctx); err != nil {
		return err
	}
	defer c.unlockObjects()
	err := c.objects.EditCSINode(ctx, func(node *storagev1.CSINode) bool { return RemoveFromCSINode(node, driver) })
	if err != nil {
		return err
	}
	return c.objects.EditNode(ctx, func(node *corev1.Node) (bool, error) { return RemoveFromNode(node, driver) })
}
