// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podcert

import (
	"github.com/seed81659283/nodeagent/volume"
)

// refusal is how the kubelet words a request that was refused.
type refusal struct {
	verb      string // in messages and in the metric
	condition string // of the PodCertificateRequest, and the reason of the event
}

// refusalOf returns the words for a refused request.
func refusalOf(e *volume.CertificateRefusedError) refusal {
	if e.Denied {
		return refusal{"denied", "Denied"}
	}
	return refusal{"failed", "Failed"}
}
