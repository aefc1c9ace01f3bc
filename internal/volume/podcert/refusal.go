// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podcert

import (
	"github.com/seed81659283/nodeagent/volume"
)

// refusalText has the kubelet's words for a refused request.
type refusalText struct {
	verb      string // used in messages and as the state in the metric
	condition string // condition type of the PodCertificateRequest, and reason of the event
}

// refusalTextOf returns the words of the kubelet for refusedErr: "denied" or "failed".
func refusalTextOf(refusedErr *volume.CertificateRefusedError) refusalText {
	if refusedErr.Denied {
		return refusalText{"denied", "Denied"}
	}
	return refusalText{"failed", "Failed"}
}
