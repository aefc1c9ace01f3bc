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

// checkServer returns an error if more than one option has the API server.
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

// requireServer returns an error that names the method if the node has no API server in memory.
func (n *Node) requireServer(method string) error {
	if n.api != nil {
		return nil
	}
	return fmt.Errorf("node %s: %s needs an API server in memory: Options.Kubeconfig is %q", n.options.Name, method, n.options.Kubeconfig)
}

// Wait waits until the agent stops, because the context of Open has ended or with an error. It returns the error. The caller must still call
// Close.
func (n *Node) Wait() error {
	if n.running == nil {
		return nil
	}
	<-n.running.ended
	return n.running.err
}

// listPods returns the pods of the node as the API server in memory has them, or as the node has received them last.
func (n *Node) listPods() []*corev1.Pod {
	if n.api == nil {
		return n.receivedPods()
	}
	pods := apiservertest.List[*corev1.Pod](n.api)
	return slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName != n.options.Name })
}

// receivedPods returns the pods of the node as its agent has received them last, in any order.
func (n *Node) receivedPods() (pods []*corev1.Pod) {
	for _, found := range n.pods.Range {
		pods = append(pods, found.(*podPair).listed)
	}
	return pods
}

// receivedPod returns the pod with this name as the agent has received it last, and false if there is none.
func (n *Node) receivedPod(namespace, name string) (*corev1.Pod, bool) {
	pods := n.receivedPods()
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return nil, false
	}
	return pods[i], true
}

// forgetPod forgets a pod that the agent has removed.
func (n *Node) forgetPod(pod cri.PodIdentity) {
	n.pods.Delete(pod.UID)
	n.log.forgetPod(pod.Namespace + "/" + pod.Name)
}
