// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/retryqueue"
	"github.com/seed81659283/nodeagent/volume/csi"
)

// driverNode tells the cluster what CSI drivers say of this node. It is a csi.Node.
type driverNode struct {
	*cluster
	later *retryqueue.Queue[string, csi.NodeInfo] // of drivers that came while the API server was away, by their names
}

func newDriverNode(c *cluster) driverNode {
	d := driverNode{cluster: c}
	d.later = retryqueue.New[string](func(ctx context.Context, info *csi.NodeInfo) bool {
		refused, err := d.install(ctx, *info)
		if err != nil {
			c.agent.log.Warn("CSI driver is not in the cluster", "driver", info.Driver, "error", err)
		}
		return err == nil || refused // until it registers itself again
	})
	return d
}

// Install puts a driver into the Node and CSINode objects. While the API server is away that is left for later, and the driver is used:
// pods that ran before are started again with its volumes.
func (d driverNode) Install(ctx context.Context, info csi.NodeInfo) error {
	refused, err := d.install(ctx, info)
	if err == nil || refused || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown { // that is an answer
		return err
	}
	d.agent.log.Warn("CSI driver: the cluster is told of it later", "driver", info.Driver, "error", err)
	d.later.Put(info.Driver, &info)
	return nil
}

// install does so, and reports whether the Node is one that the driver cannot be on.
func (d driverNode) install(ctx context.Context, info csi.NodeInfo) (refused bool, err error) {
	err = d.objects.EditNode(ctx, func(node *corev1.Node) (bool, error) {
		changed, err := info.AddToNode(node)
		refused = err != nil
		return changed, err
	})
	if err != nil {
		return refused, err
	}
	return false, d.objects.EditCSINode(ctx, func(node *storagev1.CSINode) bool { return info.AddToCSINode(node) })
}

// Uninstall takes a driver out of them.
func (d driverNode) Uninstall(ctx context.Context, driver string) error {
	d.later.Remove(driver)
	err := d.objects.EditCSINode(ctx, func(node *storagev1.CSINode) bool { return csi.RemoveFromCSINode(node, driver) })
	if err != nil {
		return err
	}
	return d.objects.EditNode(ctx, func(node *corev1.Node) (bool, error) { return csi.RemoveFromNode(node, driver) })
}
