// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package changeover

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lacking"
	"github.com/seed81659283/nodeagent/internal/lifecycle/ownership"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/volume"
)

// Node is what is known of a node on which a kubelet runs. The zero value is a node without pods.
type Node struct {
	Now      time.Time
	Settings []string // errors of the configuration
	Problems []string // reasons why the agent does not start on the machine
	Unread   []string // errors of sources that could not be read

	Owner     ownership.Owner // the agent that takes the place of the kubelet
	Cluster   bool            // the node belongs to a cluster, whose objects pods may refer to
	AllListed bool            // the sources have listed all pods
	Sysctls   []string        // allowedUnsafeSysctls
	AppArmor  error           // why the machine has no AppArmor; nil: it has

	Devices    device.Previous                     // checkpoint of devices
	DevicesErr error                               // why it could not be read; nil: it was read, or there is none
	Allocation func(uid string) *resize.Allocation // resources that the kubelet has allocated to a pod; nil: none

	Pods []Pod // each pod once
}

// Pod is a pod of a node.
type Pod struct {
	Pod           *corev1.Pod // object of the source that lists the pod; nil: no source lists it
	Observed      cri.Pod     // its sandboxes and containers
	CgroupMissing bool        // the pod has no cgroup where the agent expects it
	Volumes       []string    // directories of volumes that only the pod spec describes
	Claims        []error     // for each volume with a claim that the agent cannot set up
	Err           error       // why files, the cgroup or the claims of the pod cannot be read
}

// Decide returns the effect of a change over on the node. It is pure.
func Decide(n Node) Report {
	r := Report{Settings: orEmpty(n.Settings), Node: orEmpty(n.Problems), Unread: orEmpty(n.Unread), Pods: []PodReport{}}
	for i := range n.Pods {
		p := &n.Pods[i]
		report := PodReport{Namespace: p.Observed.Namespace, Name: p.Observed.Name, UID: p.Observed.UID}
		if p.Pod != nil {
			report.Namespace, report.Name, report.UID = p.Pod.Namespace, p.Pod.Name, string(p.Pod.UID)
		}
		report.Outcome, report.Reasons = n.decidePod(p)
		report.Reasons = orEmpty(report.Reasons)
		r.Pods = append(r.Pods, report)
	}
	slices.SortFunc(r.Pods, func(a, b PodReport) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	return r
}

// orEmpty returns list, or an empty list in the place of nil, which JSON would show as null.
func orEmpty(list []string) []string { return append([]string{}, list...) }

// decidePod returns the effect on a pod, and its reasons.
func (n *Node) decidePod(p *Pod) (Outcome, []string) {
	if mark, foreign := n.Owner.ForeignMark(&p.Observed); foreign {
		return Refuses, []string{fmt.Sprintf("its containers belong to another agent: label %s is %q", ownership.Label, mark)}
	}
	running := podview.IsRunning(p.Observed)
	switch {
	case p.Pod == nil:
		return n.decideOrphan(p)
	case p.Pod.DeletionTimestamp != nil && running:
		return Stops, []string{"it is being deleted"}
	case p.Err != nil:
		return Unknown, []string{p.Err.Error()}
	}
	pod := p.Pod.DeepCopy()
	podapi.Default(pod)
	if errs := n.checkPod(pod); len(errs) > 0 {
		var reasons []string
		for _, err := range errs {
			reasons = append(reasons, err.Error())
		}
		return Refuses, reasons
	}
	if n.Allocation != nil {
		pod = n.Allocation(string(pod.UID)).Apply(pod)
	}
	actions, _ := plan.Decide(plan.State{Pod: pod, Observed: p.Observed, Now: n.Now, Previous: &pod.Status, CgroupMissing: p.CgroupMissing})
	if reasons := explain(&actions, p.Observed); running && len(reasons) > 0 {
		if actions.PodTerminal {
			return Stops, reasons
		}
		return Restarts, reasons
	}
	reasons := n.losses(pod, p.Observed)
	for _, err := range p.Claims {
		reasons = append(reasons, err.Error()+": its containers do not start again")
	}
	if len(reasons) > 0 {
		return Loses, reasons
	}
	return Keeps, nil
}

// decideOrphan returns the effect on containers of a pod that no source lists.
func (n *Node) decideOrphan(p *Pod) (Outcome, []string) {
	if !n.AllListed {
		return Unknown, []string{"its spec cannot be read"}
	}
	reasons := []string{"no source lists it: its containers are removed"}
	for i := range n.Pods {
		if other := n.Pods[i].Pod; other != nil && other.Namespace == p.Observed.Namespace && other.Name == p.Observed.Name {
			reasons[0] = fmt.Sprintf("its UID is %s, but that of the pod with its name is %s: it is replaced", p.Observed.UID, other.UID)
		}
	}
	if len(p.Volumes) > 0 {
		reasons = append(reasons, "its volumes need to be unmounted by hand: "+strings.Join(p.Volumes[:min(len(p.Volumes), 10)], ", "))
	}
	return Stops, reasons
}

// checkPod returns an error for each field of the pod that an agent in the place of a kubelet refuses, as checkPod of package lifecycle does.
func (n *Node) checkPod(pod *corev1.Pod) field.ErrorList {
	if errs := podapi.Validate(pod); len(errs) > 0 {
		return errs
	}
	errs := podapi.Unsupported(pod)
	errs = append(errs, lacking.Features{
		Probes: true, Images: true, Volumes: true, Devices: true, HostsFiles: true, UserNamespaces: true, Admission: n.Cluster,
	}.CheckPod(pod)...)
	errs = append(errs, volume.CheckPod(pod, volumePlugins(n.Cluster), n.Cluster)...)
	if n.AppArmor != nil && podapi.UsesAppArmor(pod) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "securityContext", "appArmorProfile"), n.AppArmor.Error()))
	}
	return append(errs, podapi.ForbiddenSysctls(pod, n.Sysctls)...)
}

// explain returns why the actions stop running containers; empty: they do not.
func explain(actions *plan.Actions, observed cri.Pod) (reasons []string) {
	if actions.SandboxChangeReason != "" {
		reasons = append(reasons, "its sandbox is replaced: "+actions.SandboxChangeReason)
	}
	for _, kill := range actions.Kill {
		reasons = append(reasons, fmt.Sprintf("container %s: %s", kill.Name, cmp.Or(kill.Reason, kill.EventMessage())))
	}
	for i := range observed.Sandboxes {
		if s := &observed.Sandboxes[i]; s.State == cri.SandboxReady && slices.Contains(actions.StopSandboxes, s.ID) && len(reasons) == 0 {
			reasons = append(reasons, "its sandbox is stopped")
		}
	}
	return reasons
}

// losses returns what running containers of the pod have from the kubelet, and the agent does not know or does not support.
func (n *Node) losses(pod *corev1.Pod, observed cri.Pod) (reasons []string) {
	uid := string(pod.UID)
	for c := range podfield.Containers(&pod.Spec) {
		if !slices.ContainsFunc(observed.Containers, func(o cri.Container) bool { return o.Name == c.Name && o.State == cri.ContainerRunning }) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			if podfield.IsExtendedResource(name) {
				reasons = append(reasons, n.checkDevices(uid, c.Name, string(name))...)
			}
		}
	}
	return reasons
}

// checkDevices returns an error if the devices of a container are not in the checkpoint. A resource of no device plugin, which the Node object alone
// has, is in no checkpoint.
func (n *Node) checkDevices(uid, container, resource string) []string {
	if n.DevicesErr != nil {
		return []string{fmt.Sprintf("container %s: its devices %s are not known: %v", container, resource, n.DevicesErr)}
	}
	isOf := func(c device.Claim) bool {
		return c.PodUID == uid && c.Container == container && c.Resource == resource
	}
	if slices.Contains(n.Devices.Resources, resource) && !slices.ContainsFunc(n.Devices.Claims, isOf) {
		return []string{fmt.Sprintf("container %s: its devices %s have no record", container, resource)}
	}
	return nil
}
