// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

// MaxFiles is the maximum number of files of a payload.
const MaxFiles = maxFiles
