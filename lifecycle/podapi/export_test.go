// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

// MaxEntries is maxEntries.
const MaxEntries = maxEntries
