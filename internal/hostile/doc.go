// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile is a corpus of manifests that want to stop an agent: by its memory, its time or its stack. It is for
// tests, and knows nothing of how manifests are read.
//
// Small ones are the files in the directory manifests; what is large is written when it is asked for, as large as the
// test wants it. Whatever an agent makes of one, it must go on and run the pods of other manifests.
package hostile
