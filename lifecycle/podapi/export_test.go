// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

// MaxEntries exports maxEntries to the tests.
const MaxEntries = maxEntries
