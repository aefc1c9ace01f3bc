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

// retire forgets a worker of whose pod nothing is left. Its successors forget it too: otherwise each pod would keep all earlier pods of
// its name in memory.
func (r *Reconciler) removeWorker(w *worker) {
	r.mu.Lock()
	delete(r.workers, w.id.UID)
	r.mu.Unlock()
	if w.admissionTicket != nil {
		w.admissionTicket.Withdraw()
	}
	close(w.removed)
	r.deferred.removeResize(w.id.UID)
	w.earlierPods.removeWorker(nil)
	r.mu.Lock()
	for _, successor := range r.workers {
		if successor.id.Name == w.id.Name && successor.id.Namespace == w.id.Namespace {
			successor.earlierPods.removeWorker(w)
		}
	}
	r.mu.Unlock()
	r.signalWorkers()
}

// syncWorkers fits the set of workers to what is wanted and to what the runtime has, and returns the workers to start. Without
// the whole of what the runtime has, which it reports, nothing is taken for unwanted or removed.
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
	wanted := r.desiredPods()
	r.updateWorkers(wanted)
	names := make(map[string][]*worker, len(r.workers)) // that a pod still holds
	for _, w := range r.workers {
		name := w.id.Namespace + "/" + w.id.Name
		names[name] = append(names[name], w)
	}
	add := func(id cri.PodIdentity, pod *corev1.Pod, listed time.Time) {
		name := id.Namespace + "/" + id.Name
		w := newWorker(r, id, pod)
		if !listed.IsZero() {
			w.progress.lastSync = listed.Add(-1) // an older reading, without the pod, would end the worker, and the list begin another
		}
		w.expectAdmission(pod)
		if pod != nil {
			w.earlierPods.workers = slices.Clone(names[name])
			w.setSource(wanted.Holder(id.UID))
		}
		r.workers[id.UID] = w
		names[name] = append(names[name], w)
		started = append(started, w)
	}
	for _, p := range r.selectOrphans(observed, wanted, listComplete) {
		add(p.PodIdentity, nil, p.Time)
	}
	for pod := range wanted.Pods() {
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

// updateWorkers gives each worker the newest version of its pod, or its deletion if no source lists the pod any more. The worker of a
// rejected pod keeps it while its source lists it. The lock is held.
func (r *Reconciler) updateWorkers(wanted *podset.Merge) {
	refused := map[string]*corev1.Pod{}
	for _, pod := range wanted.RefusedPods() {
		refused[string(pod.Pod.UID)] = pod.Pod
	}
	for uid, w := range r.workers {
		if pod := wanted.Pod(uid); pod != nil && w.source == wanted.Holder(uid) {
			w.mailbox.Update(pod, w.shared.isTerminal())
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

// orphans returns the orphaned pods that have to go: those that stand in the way of a wanted pod of the same name, and, once
// every source has reported completely and the runtime was listed to the end, all others. So do the directories of pods that
// neither is wanted nor has anything in the runtime, as an agent leaves them that dies between its last call for a pod and its
// last look at it. What has no record was not made by an agent. The directory of a pod that could not be looked into, or that
// is another agent's, stays: it holds the IDs that its containers run with.
func (r *Reconciler) selectOrphans(observed []cri.Pod, wanted *podset.Merge, listComplete bool) (orphans []cri.Pod) {
	all := listComplete && wanted.Complete()
	names := map[string]bool{}
	for pod := range wanted.Pods() {
		names[pod.Namespace+"/"+pod.Name] = true
	}
	for i := range observed {
		p := &observed[i]
		if wanted.Pod(p.UID) != nil || r.workers[p.UID] != nil || !r.owner.Owns(p) {
			continue
		}
		if all && !wanted.Refused(p.UID) || names[p.Namespace+"/"+p.Name] {
			orphans = append(orphans, *p)
		}
	}
	// Whether there is anything of a pod that was not listed is found out by its worker, which removes what is on disk.
	r.recordedPods = slices.DeleteFunc(r.recordedPods, func(id cri.PodIdentity) bool {
		known := slices.ContainsFunc(observed, func(p cri.Pod) bool { return p.UID == id.UID })
		if known || wanted.Pod(id.UID) != nil || r.workers[id.UID] != nil {
			return false
		}
		if (!all || wanted.Refused(id.UID)) && !names[id.Namespace+"/"+id.Name] {
			return false
		}
		orphans = append(orphans, cri.Pod{PodIdentity: id})
		return true
	})
	return orphans
}

// allKnown reports whether all that is wanted is known.
func (r *Reconciler) areSourcesComplete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.desiredPods().Complete()
}
