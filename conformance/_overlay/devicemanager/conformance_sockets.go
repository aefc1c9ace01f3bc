// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"path/filepath"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	plugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
)

// ConformanceCounts counts the lists and disconnections that a device manager has processed since it started.
type ConformanceCounts struct{ Lists, Disconnections atomic.Int64 }

// NewConformanceSocketNode returns a node like NewConformanceNode, whose plugins register on kubelet.sock in dir. Stop it.
func NewConformanceSocketNode(dir string, numaNodes int, policy, scope string) (*ConformanceNode, error) {
	return newConformanceNode(&ConformanceNode{dir: dir, sockets: true}, numaNodes, policy, scope)
}

// startServer starts a device manager with its registration server.
func (n *ConformanceNode) startServer() error {
	socket := filepath.Join(n.dir, filepath.Base(pluginapi.KubeletSocket))
	m, err := newManagerImpl(klog.Logger{}, socket, n.numa, n.topology)
	if err != nil {
		return err
	}
	n.manager, n.counts = m, &ConformanceCounts{}
	if m.server, err = plugin.NewServer(klog.Logger{}, socket, m, conformanceHandler{m, n.counts}); err != nil {
		return err
	}
	n.topology.AddHintProvider(klog.Logger{}, m)
	return m.Start(klog.Logger{}, func() []*v1.Pod { return n.Active }, &sourcesReadyStub{}, containermap.NewContainerMap(), sets.New[string]())
}

// Stop stops the registration server and disconnects all plugins.
func (n *ConformanceNode) Stop() error { return n.manager.Stop(klog.Logger{}) }

// Manager returns the current device manager.
func (n *ConformanceNode) Manager() *ManagerImpl { return n.manager }

// Counts returns the counts of the current device manager.
func (n *ConformanceNode) Counts() *ConformanceCounts { return n.counts }

// conformanceHandler passes the calls of the plugin server to a device manager, and counts those that have returned.
type conformanceHandler struct {
	m      *ManagerImpl
	counts *ConformanceCounts
}

// PluginConnected connects a plugin.
func (h conformanceHandler) PluginConnected(ctx context.Context, name string, p plugin.DevicePlugin) error {
	return h.m.PluginConnected(ctx, name, p)
}

// PluginDisconnected disconnects a plugin.
func (h conformanceHandler) PluginDisconnected(logger klog.Logger, name, socket string) {
	h.m.PluginDisconnected(logger, name, socket)
	h.counts.Disconnections.Add(1)
}

// PluginListAndWatchReceiver replaces the devices of a resource, and writes the checkpoint.
func (h conformanceHandler) PluginListAndWatchReceiver(logger klog.Logger, name string, list *pluginapi.ListAndWatchResponse) {
	h.m.PluginListAndWatchReceiver(logger, name, list)
	h.counts.Lists.Add(1)
}
