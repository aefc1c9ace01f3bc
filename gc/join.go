// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

// JoinContainerHooks returns one ContainerHooks value for all given hooks. Each of its hooks calls the same hook of each
// argument, in order. Nil hooks are skipped.
func JoinContainerHooks(hooks ...ContainerHooks) ContainerHooks {
	return ContainerHooks{
		Removed: func(r Removal) {
			for _, h := range hooks {
				if h.Removed != nil {
					h.Removed(r)
				}
			}
		},
		DirRemoved: func(path string) {
			for _, h := range hooks {
				if h.DirRemoved != nil {
					h.DirRemoved(path)
				}
			}
		},
		Event: func(reason, message string) {
			for _, h := range hooks {
				if h.Event != nil {
					h.Event(reason, message)
				}
			}
		},
	}
}
