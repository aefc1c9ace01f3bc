// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// unmatchedError lists the volumes of a pod whose plugins Kubernetes has removed. Its text is the text of the kubelet. Source:
// WaitForAttachAndMount in pkg/kubelet/volumemanager/volume_manager.go.
type unmatchedError []string

// Error returns the kubelet's error text for volumes that no plugin supports.
func (e unmatchedError) Error() string {
	names := slices.Sorted(slices.Values(e))
	var causes []error
	for _, name := range names {
		causes = append(causes, fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=no volume plugin matched", name))
	}
	if more := len(names) - maxListed; more > 0 {
		names = append(names[:maxListed], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("unmounted volumes=%v, unattached volumes=[], failed to process volumes=%v: %v", names, names, joinErrors(causes))
}

// maxListed is the maximum number of volumes in the text of an error.
const maxListed = 5

// joined contains several errors. Its text is one line.
type joined []error

// joinErrors returns the only error, or one that wraps all, with the texts of the first maxListed.
func joinErrors(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return joined(errs)
}

// Error returns the texts of the first maxListed errors in one line, and the number of the remaining errors.
func (j joined) Error() string {
	var texts []string
	for i, err := range j {
		if i == maxListed {
			texts = append(texts, "and "+strconv.Itoa(len(j)-i)+" more")
			break
		}
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all errors.
func (j joined) Unwrap() []error { return j }
