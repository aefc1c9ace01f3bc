// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri"
)

// clusterLogLimit is the number of entries in the log of a node of a real cluster, which may run for weeks.
const clusterLogLimit = 1000

// checkServer returns an error if Kubeconfig and API are both set. It also returns an error for a kubeconfig or rotateCertificates in Config, which a
// Node does not support.
func (o *Options) checkServer() error {
	if o.Kubeconfig != "" && o.API != nil {
		return fmt.Errorf("nodetest.Options.Kubeconfig %q: Options.API is set too", o.Kubeconfig)
	}
	if k := o.Config.Node.Kubeconfig; k != "" {
		return fmt.Errorf("nodetest.Options.Config: kubeconfig %q: use Options.Kubeconfig", k)
	}
	if o.Config.Kubelet.RotateCertificates {
		return errors.New("nodetest.Options.Config: rotateCertificates true: the node has no directory for certificates")
	}
	return nil
}

// requireServer returns an error if the node uses a real API server instead of an API server in memory. method is the
// calling method, for the error text.
func (n *Node) requireServer(method string) error {
	if n.api != nil {
		return nil
	}
	return fmt.Errorf("node %s: %s needs an API server in memory: Options.Kubeconfig is %q", n.options.Name, method, n.options.Kubeconfig)
}

// Wait blocks until the agent has stopped, and returns the error with which the agent failed, or nil. The end of the context
// of [Open] also stops the agent. The caller must still call Close.
func (n *Node) Wait() error {
	if n.running == nil {
		return nil
	}
	<-n.running.ended
	return n.running.err
}

// listPods returns the pods of the node from the API server in memory. For a real API server, it returns the pods that the
// agent has received.
func (n *Node) listPods() []*corev1.Pod {
	if n.api == nil {
		return n.receivedPods()
	}
	pods := apiservertest.List[*corev1.Pod](n.api)
	return slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName != n.options.Name })
}

// receivedPods returns the newest version of each pod that the agent has received from the API server, in no particular
// order.
func (n *Node) receivedPods() (pods []*corev1.Pod) {
	for _, found := range n.pods.Range {
		pods = append(pods, found.(*podPair).listed)
	}
	return pods
}

// receivedPod returns the newest version of the named pod that the agent has received from the API server. It returns false
// if the agent has not received such a pod.
func (n *Node) receivedPod(namespace, name string) (*corev1.Pod, bool) {
	pods := n.receivedPods()
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return nil, false
	}
	return pods[i], true
}

// forgetPod deletes the node's data of a pod that the agent has removed.
func (n *Node) forgetPod(pod cri.PodIdentity) {
	n.pods.Delete(pod.UID)
	n.log.forgetPod(pod.Namespace + "/" + pod.Name)
}
