// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podset"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// removeWorker deletes the worker of a removed pod, and wakes workers of later pods with the same namespace and name.
func (r *Reconciler) removeWorker(podWorker *worker) {
	r.mu.Lock()
	delete(r.workers, podWorker.id.UID)
	r.mu.Unlock()
	if podWorker.admissionTicket != nil {
		podWorker.admissionTicket.Withdraw()
	}
	close(podWorker.removed)
	r.deferred.removeResize(podWorker.id.UID)
	// References to other workers are dropped, so that their memory is freed.
	podWorker.earlierPods.removeWorker(nil)
	r.mu.Lock()
	for _, successor := range r.workers {
		if successor.id.Name == podWorker.id.Name && successor.id.Namespace == podWorker.id.Namespace {
			successor.earlierPods.removeWorker(podWorker)
		}
	}
	r.mu.Unlock()
	r.signalWorkers()
}

// syncWorkers updates the workers, and returns new ones for the desired and orphaned pods without a worker. The caller starts
// their goroutines.
func (r *Reconciler) syncWorkers() (started []*worker, listComplete bool) {
	observed, err := r.observer.Pods()
	r.reportListError(err)
	if listComplete = err == nil; listComplete {
		r.recordedPods = nil
		if !r.recordsLoaded && r.areSourcesComplete() {
			r.recordsLoaded = true
			r.loadRecordedPods()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	desired := r.desiredPods()
	r.updateWorkers(desired)
	names := make(map[string][]*worker, len(r.workers)) // pods that have a name, by namespace/name
	for _, w := range r.workers {
		name := w.id.Namespace + "/" + w.id.Name
		names[name] = append(names[name], w)
	}
	add := func(id cri.PodIdentity, pod *corev1.Pod, listed time.Time) {
		name := id.Namespace + "/" + id.Name
		w := newWorker(r, id, pod)
		if !listed.IsZero() {
			w.progress.lastSync = listed.Add(-1) // with an observation older than the list, the worker would end, and the next list would start another
		}
		w.expectAdmission(pod)
		if pod != nil {
			w.earlierPods.workers = slices.Clone(names[name])
			w.setSource(desired.SourceOf(id.UID))
		}
		r.workers[id.UID] = w
		names[name] = append(names[name], w)
		started = append(started, w)
	}
	// With an incomplete list, no pod is orphaned.
	for _, p := range r.selectOrphans(observed, desired, listComplete) {
		add(p.PodIdentity, nil, p.Time)
	}
	for pod := range desired.Pods() {
		if uid := string(pod.UID); r.workers[uid] == nil {
			add(cri.PodIdentity{UID: uid, Name: pod.Name, Namespace: pod.Namespace}, pod, time.Time{})
		}
	}
	r.startRejections(observed, listComplete, func(refused podset.RefusedPod, why *podstatus.Rejection) {
		pod := refused.Pod
		w := newWorker(r, cri.PodIdentity{UID: string(pod.UID), Name: pod.Name, Namespace: pod.Namespace}, pod)
		w.rejection = why
		w.shared.setAdmission(admissionPending)
		w.setSource(refused.Source)
		r.workers[w.id.UID] = w
		started = append(started, w)
	})
	if r.draining && len(r.workers) == 0 && listComplete {
		r.closeDrained()
	}
	return started, listComplete
}

// updateWorkers passes each worker the newest version of its pod, or its deletion. The caller holds Reconciler.mu.
func (r *Reconciler) updateWorkers(desired *podset.Merge) {
	refused := map[string]*corev1.Pod{}
	for _, pod := range desired.RefusedPods() {
		refused[string(pod.Pod.UID)] = pod.Pod
	}
	for uid, w := range r.workers {
		if pod := desired.Pod(uid); pod != nil && w.source == desired.SourceOf(uid) {
			w.mailbox.Update(pod, w.shared.isTerminal())
			// A rejected pod stays as long as its source lists it.
		} else if pod := refused[uid]; pod != nil && w.rejection != nil {
			w.mailbox.Update(pod, w.shared.isTerminal())
		} else {
			w.mailbox.Delete()
		}
	}
	r.deferred.podsChanged()
}

func (r *Reconciler) closeDrained() {
	select {
	case <-r.drained:
	default:
		close(r.drained)
	}
}

// selectOrphans returns the orphaned pods to tear down, that is pods in the runtime that no source lists. While the list of
// the runtime's pods or the pods of a source are incomplete, it returns only orphans that have the name of a desired pod,
// because this pod waits for their removal.
//
// The result includes pods of which only the directory with the record remains, for example after a crash of the agent. It
// excludes pods of other agents. It also excludes pods that could not be read, because their directories may hold the user
// namespace IDs of running containers.
func (r *Reconciler) selectOrphans(observed []cri.Pod, desired *podset.Merge, listComplete bool) (orphans []cri.Pod) {
	all := listComplete && desired.IsComplete()
	names := map[string]bool{}
	for pod := range desired.Pods() {
		names[pod.Namespace+"/"+pod.Name] = true
	}
	for i := range observed {
		p := &observed[i]
		if desired.Pod(p.UID) != nil || r.workers[p.UID] != nil || !r.owner.Owns(p) {
			continue
		}
		if all && !desired.IsRefused(p.UID) || names[p.Namespace+"/"+p.Name] {
			orphans = append(orphans, *p)
		}
	}
	// The worker of such a pod observes whether the runtime has it, and removes its directory.
	r.recordedPods = slices.DeleteFunc(r.recordedPods, func(id cri.PodIdentity) bool {
		known := slices.ContainsFunc(observed, func(p cri.Pod) bool { return p.UID == id.UID })
		if known || desired.Pod(id.UID) != nil || r.workers[id.UID] != nil {
			return false
		}
		if (!all || desired.IsRefused(id.UID)) && !names[id.Namespace+"/"+id.Name] {
			return false
		}
		orphans = append(orphans, cri.Pod{PodIdentity: id})
		return true
	})
	return orphans
}

// areSourcesComplete reports whether every source in Options.Sources has reported all of its pods.
func (r *Reconciler) areSourcesComplete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.desiredPods().IsComplete()
}
