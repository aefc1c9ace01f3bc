// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"github.com/seed81659283/nodeagent/internal/volume/podcert"
)

// CertificateCounts returns the number of certificates of a keeper by state.
func CertificateCounts(k *CertificateKeeper) map[podcert.CertificateState]int {
	return k.keeper.CountStates()
}
