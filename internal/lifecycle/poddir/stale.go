// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"errors"
	"fmt"
)

// RemoveStale removes from the records below root what another agent may have changed since they were written: statuses, admissions, rejections,
// evictions, hooks and resources. The pods are admitted again, as after a restart of a kubelet. The name and the source of a pod stay, so that orphaned
// pods are cleaned up, and the counts of its temporary evictions. A damaged record stays: it has no effect. No Recorder may be in use.
func RemoveStale(root string) error {
	uids, err := RecordedPods(root)
	errs := []error{err}
	for _, uid := range uids {
		r := NewRecorder(DirOf(root, uid), "")
		if r.Load() != nil {
			continue
		}
		r.pod, r.source = r.record.Pod, r.record.Source
		err := r.Update(func(now *Record) { *now = Record{AdmissionPending: true, EvictionHistory: now.EvictionHistory} })
		if err != nil {
			errs = append(errs, fmt.Errorf("remove the stale fields of the record of pod %s: %w", uid, err))
		}
	}
	return errors.Join(errs...)
}
