// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile is a corpus of manifests that attack an agent by memory use, CPU time or stack depth. It is for tests, and does
// not parse manifests.
//
// Small manifests are files in the directory manifests. Large ones are generated in the size that the test requests. Whether an
// agent accepts or rejects a manifest, it must continue and run the pods of other manifests.
package hostile
