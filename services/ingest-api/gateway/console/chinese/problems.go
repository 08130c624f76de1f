package chinese

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Problems are what fsck says of a violation, as the formats of its words. Rules that only `millweir fsck` can judge, by logs of
// clients and workers, have none: no check of the console shows them.
var Problems = map[string]string{
	// The logs of tasks (pkg/taskstate/history).
	"transition %d: %s":                                                                       "第 %s 次变更：%s",
	"it has a log and no row":                                                                 "它有日志而没有数据行",
	"it goes from %s, the one before ended in %s":                                             "它从 %s 开始，而前一次变更止于 %s",
	"it is %s older than the one before":                                                      "它比前一次变更早 %s",
	"%s→%s, %s by %s, is in no row of the table":                                              "%s→%s（%s，由 %s 作出）不在允许的变更之列",
	"its fence is %d, must be %d":                                                             "其栅栏号为 %s，应为 %s",
	"%s ended the run that %s held":                                                           "%s 结束了由 %s 持有的运行",
	"it was claimed on timeline %d and ended on %d":                                           "它在时间线 %s 上被认领，在 %s 上结束",
	"the run of fence %d was ended with fence %d":                                             "栅栏号 %s 的运行以栅栏号 %s 结束",
	"the run of fence %d had ended before":                                                    "栅栏号 %s 的运行此前已结束",
	"its lease (%s) does not lie ahead":                                                       "其租约（%s）不在未来",
	"it keeps a lease and is not RUNNING":                                                     "它保留租约，但不是 RUNNING",
	"it was taken over %s before the lease of %s ended":                                       "它在 %[2]s 的租约到期前 %[1]s 被接管",
	"its attempt count is %d, must be %d after %s":                                            "其尝试次数为 %s，在 %[3]s 之后应为 %[2]s",
	"its crash count is %d, must be %d after %s":                                              "其崩溃次数为 %s，在 %[3]s 之后应为 %[2]s",
	"crash %d was taken over, the limit is %d":                                                "第 %s 次崩溃后被接管，上限为 %s",
	"it died of the crash limit at crash %d, the limit is %d":                                 "它在第 %s 次崩溃时因崩溃上限终止，上限为 %s",
	"it is %s and has a next retry":                                                           "它是 %s，却有下次重试时间",
	"it is RETRYING without a next retry":                                                     "它是 RETRYING，却没有下次重试时间",
	"attempt %d (%s) waits %s, must be between %s and %s":                                     "第 %s 次尝试（%s）等待 %s，应在 %s 与 %s 之间",
	"it started %s early":                                                                     "它提前 %s 开始",
	"%s→%s, %s by %s: only a person's replay leaves DEAD or CANCELLED, and nothing SUCCEEDED": "%s→%s（%s，由 %s 作出）：只有人发起的重放能离开 DEAD 或 CANCELLED，SUCCEEDED 不能离开",
	"its row says %s and its log is empty":                                                    "其数据行为 %s，而日志为空",
	"its row says %s, attempt %d, crashes %d, fence %d; its log ends in %s, attempt %d, crashes %d, fence %d": "其数据行为 %s、尝试 %s、崩溃 %s、栅栏号 %s；日志止于 %s、尝试 %s、崩溃 %s、栅栏号 %s",
	"its row's next retry is %s, its log's %s":                                                                "其数据行的下次重试为 %s，日志的为 %s",
	"it waited for another try after failure %d, its limit is %d":                                             "第 %s 次失败后仍在等待重试，其上限为 %s",
	"its attempts were used up at %d, its limit is %d":                                                        "其尝试在第 %s 次时用尽，其上限为 %s",

	// Tasks.
	"it ended in %s, not %s: attempt %d/%d, crashes %d, last error %q":                    "它止于 %s，而不是 %s：尝试 %s/%s，崩溃 %s，最近的错误 %s",
	"it has no delivery since %s, was to be promised again at %s, and that is %s overdue": "它自 %s 起没有投递，应于 %s 再次承诺，已逾期 %s",
	"it is %s with attempt %d/%d, crashes %d, last error %q":                              "它是 %s：尝试 %s/%s，崩溃 %s，最近的错误 %s",
	"it is %s, wakes at %s and no call says so":                                           "它是 %s，将于 %s 被唤醒，但没有调用指明",
	"it is of the user %q: %v":                                                            "它属于用户 %s：%s",
	"its lease ended at %s and nobody took it over":                                       "其租约已于 %s 到期，无人接管",
	"no request in the client log asked for it, its channel is %q, its maker %s":          "客户端日志中没有请求它，其渠道为 %s，创建者为 %s",
	"the queue had lost all at %s, and its promise is of %s":                              "队列于 %s 丢失了全部内容，而其承诺是 %s 的",
	"transition %d is by %s, the task is %s's":                                            "第 %s 次变更由 %s 作出，任务属于 %s",
	"transition %d started it and names no delivery":                                      "第 %s 次变更启动了它，却没有指明投递",
	"it is %s and has no row of workflow_runs":                                            "它是 %s，但在 workflow_runs 中没有数据行",
	"it is %s and workflow_runs says %s":                                                  "它是 %s，而 workflow_runs 为 %s",
	"it is %s and workflow_runs says %s, with another result: %t":                         "它是 %s，而 workflow_runs 为 %s，结果不同：%s",
	"it fails and is not counted among the failures":                                      "它失败了，但没有计入失败",
	"it is counted among the failures and does not fail":                                  "它计入了失败，但并没有失败",
	"the group says %d tasks, and %d are counted in it":                                   "该组记为 %s 个任务，其中计数的有 %s 个",
	"%d are counted, and there are %d":                                                    "计数为 %s，实际为 %s",
	"of user %q in knowledge base %q %d are counted, and there are %d":                    "用户 %s 在知识库 %s 中计数为 %s，实际为 %s",
	"%d %s documents with %d segments are counted, and there are %d with %d":              "%[2]s 文档计数为 %[1]s 个、%[3]s 个分段，实际为 %[4]s 个、%[5]s 个",
	"whose tasks a call moved cannot be read: %s":                                         "无法读取一次调用更改了谁的任务：%s",
	"the gateway counts %d, SQL %d":                                                       "网关计数为 %s，SQL 为 %s",
	"it is %s since %s, and a copy of it is left":                                         "它自 %[2]s 起为 %[1]s，却仍有副本",
	"it is %s, of %s, and has neither a copy nor a row of mirror_failure that says why":   "它是 %s（%s），既没有副本，也没有说明原因的 mirror_failure 数据行",

	// Attachments and receipts.
	"it is an attachment of document %s, which is gone":                                   "它是文档 %s 的附件，而该文档已不存在",
	"it is an attachment of document %s, which is deleted and was swept %d times":         "它是文档 %s 的附件，而该文档已删除并已扫描 %s 次",
	"it is in knowledge base %s of user %q, its message %s in %s of user %q":              "它在用户 %[2]s 的知识库 %[1]s 中，而其邮件 %[3]s 在用户 %[5]s 的 %[4]s 中",
	"it is deleted and has no receipt":                                                    "它已删除，却没有回执",
	"its receipt says that it was removed, and rows of it are left":                       "其回执注明已移除，却仍有它的数据行",
	"its receipt does not say that it was removed, and it is no deleted document":         "其回执未注明已移除，但它不是已删除的文档",
	"the times of its receipt are not in the order of deletion, removal and verification": "其回执的时间不符合删除、移除、核实的顺序",

	// The queue and the outbox.
	"an entry of %s was given to nobody":                                        "%s 的一个条目没有分给任何消费者",
	"dead letter %s names fence %d, with which it never died":                   "死信 %s 指明栅栏号 %s，但它从未以此终止",
	"entry %s is pending and names no task":                                     "条目 %s 待处理，却没有指明任务",
	"entry %s is pending and was removed":                                       "条目 %s 待处理，却已被删除",
	"entry %s was removed, the group was given entries up to %s only":           "条目 %s 已被删除，而消费组只得到 %s 为止的条目",
	"it is %s and entry %s is pending":                                          "它是 %s，而条目 %s 仍待处理",
	"it is DEAD and owes no dead letter":                                        "它是 DEAD，却没有待写的死信",
	"it is DEAD with fence %d, its dead letter was written, and there is none":  "它以栅栏号 %s 为 DEAD，死信已写入，却找不到",
	"it is pending for %s and does not exist any more":                          "它在 %s 中待处理，却已不存在",
	"its dead letter is owed since %s":                                          "其死信自 %s 起待写",
	"offset %d is committed, the log ends at %d: it was lost":                   "位移 %s 已提交，而日志止于 %s：内容已丢失",
	"the committed offset fell from %d to %d":                                   "已提交的位移从 %s 回退到 %s",
	"the group has not finished a record of %s":                                 "消费组尚未完成 %s 的一条记录",
	"it is %s since %s and was to be looked at at %s":                           "它自 %[2]s 起为 %[1]s，应于 %[3]s 处理",
	"it is %s with next retry %s, and sent at %s":                               "它是 %s，下次重试为 %s，发送于 %s",
	"it is DEAD with lease %q, next retry %s, sent at %s":                       "它是 DEAD，租约 %s，下次重试 %s，发送于 %s",
	"it is SENT at %s, made at %s, with lease %q, next retry %s, last error %q": "它于 %s 为 SENT，创建于 %s，租约 %s，下次重试 %s，最近的错误 %s",

	// Documents and their versions.
	"version %s is visible and its task %s is %s":                                            "版本 %s 可见，而其任务 %s 为 %s",
	"version %s (no %d) is visible, the document names %q (no %d)":                           "版本 %s（第 %s 个）可见，而文档指明 %s（第 %s 个）",
	"version %d was visible, and now the older %d is":                                        "版本 %s 曾经可见，而现在较早的 %s 可见",
	"version %s is BUILDING and its task %s is %s":                                           "版本 %s 为 BUILDING，而其任务 %s 为 %s",
	"%d versions are visible":                                                                "有 %s 个版本可见",
	"it is deleted and version %s is visible":                                                "它已被删除，而版本 %s 可见",
	"it had a visible version, was not deleted, and has none":                                "它曾有可见版本，未被删除，现在却没有",
	"it names visible version %q, which is not":                                              "它指明可见版本 %s，而该版本不可见",
	"its status is %s with %d visible versions":                                              "其状态为 %s，有 %s 个可见版本",
	"it counts %d segments, its visible version %d":                                          "它记有 %s 个分段，其可见版本有 %s 个",
	"it is the document of user %q, its base that of user %q":                                "它是用户 %s 的文档，其知识库属于用户 %s",
	"it is the document of user %q, its task %s that of user %q":                             "它是用户 %s 的文档，其任务 %s 属于用户 %s",
	"it is the document of user %q, version %s has a file of user %q":                        "它是用户 %s 的文档，版本 %s 的文件属于用户 %s",
	"version %s is of stored file %s, which has no row":                                      "版本 %s 来自文件 %s，该文件没有数据行",
	"version %s is visible and names no stored file":                                         "版本 %s 可见，却没有指明文件",
	"its row has SHA-256 %s, the stored file of its newest upload %s":                        "其数据行的 SHA-256 为 %s，最新上传的文件为 %s",
	"its row has SHA-256 %s and is found by %s":                                              "其数据行的 SHA-256 为 %s，却以 %s 查找",
	"the metadata of version %s cannot be read":                                              "版本 %s 的元数据无法读取",
	"version %s has metadata %q without its row":                                             "版本 %s 的元数据 %s 没有数据行",
	"version %s has metadata %q with another row":                                            "版本 %s 的元数据 %s 与数据行不一致",
	"version %s has a row of metadata %q, which it has not":                                  "版本 %s 有元数据 %s 的数据行，却没有该元数据",
	"version %s has %d segments, its row says %d":                                            "版本 %s 有 %s 个分段，其数据行记为 %s 个",
	"version %s: segment %d stands at place %d":                                              "版本 %s：分段 %s 位于第 %s 位",
	"version %s: the text of segment %d has SHA-256 %s, its row says %s":                     "版本 %s：分段 %s 文本的 SHA-256 为 %s，其数据行记为 %s",
	"version %s: two segments share vector %s":                                               "版本 %s：两个分段共用向量 %s",
	"version %s: segment %d was born in version %s, which is no earlier one of the document": "版本 %s：分段 %s 产生于版本 %s，而它不是该文档的较早版本",
	"versions %s and %s were made of the same bytes (%s) with the same settings and differ":  "版本 %s 与 %s 由相同内容（%s）以相同设置生成，却不一致",
	"it was deleted, the sweep passed %d times, and %d %s are left":                          "它已被删除，清理已进行 %s 次，仍剩 %s 个（%s）",
	"segments":   "分段",
	"open tasks": "未结束的任务",

	// Files, vectors, the full-text index, texts.
	"stored file is missing in the upload folder":                                 "文件在上传目录中缺失",
	"stored file has %d bytes with SHA-256 %s, its row says %d and %s":            "文件有 %s 字节，SHA-256 为 %s，其数据行记为 %s 和 %s",
	"file %s in the upload folder has no row":                                     "上传目录中的文件 %s 没有数据行",
	"version %s: visible vector %s %s":                                            "版本 %s：可见向量 %s %s",
	"is not in the store":                                                         "不在存储中",
	"has other values in the store than were embedded":                            "在存储中的数值与嵌入所得不同",
	"belongs to document %q and version %q in the store, its row says version %s": "在存储中属于文档 %s 和版本 %s，其数据行记为版本 %s",
	"the base has %d dimensions, its collection refuses such a vector: %v":        "知识库有 %s 维，其集合拒绝这样的向量：%s",
	"the store holds vector %s, which no row names":                               "存储中有向量 %s，没有数据行指向它",
	"the store lists vector %s twice":                                             "存储两次列出向量 %s",
	"part %s of its full-text index is damaged":                                   "其全文索引的部分 %s 已损坏",
	"version %s: the full-text index lacks %d of its segments":                    "版本 %s：全文索引缺少其 %s 个分段",
	"it holds %s":         "其中含有%s",
	"line %d holds %s":    "第 %s 行含有%s",
	"planted secret %d":   "植入的机密 %s",
	"rows of %s: %v (%q)": "%s 的数据行：%s（%s）",
	"rows of %s: the user ids %q and %q can be taken for one another": "%s 的数据行：用户 ID %s 与 %s 可能混淆",
	"something that looks like a secret, after %q":                    "看似机密的内容，位于 %s 之后",
}

// A problem is recognized by its English format.
type problem struct {
	english *regexp.Regexp
	chinese string
}

// verbs are the verbs of problems, quoted for a regular expression, and what they stand for.
var verbs = strings.NewReplacer("%d", `(-?\d+)`, "%q", `("(?:[^"\\]|\\.)*")`, "%s", `(.*?)`, "%v", `(.*?)`, "%t", `(true|false)`)

// compiled are the problems, those with more words of their own before those that say less.
var compiled = sync.OnceValue(func() (out []problem) {
	own := func(format string) int { return len(format) - 2*strings.Count(format, "%") }
	for _, english := range slices.SortedFunc(maps.Keys(Problems), func(a, b string) int {
		return cmp.Or(own(b)-own(a), strings.Compare(a, b))
	}) {
		out = append(out, problem{regexp.MustCompile(`(?s)^` + verbs.Replace(regexp.QuoteMeta(english)) + `$`), Problems[english]})
	}
	return out
})

// Problem says in Chinese what fsck says of a violation; false: nothing is known for it.
func Problem(text string) (string, bool) {
	for _, p := range compiled() {
		found := p.english.FindStringSubmatch(text)
		if found == nil {
			continue
		}
		args := make([]any, len(found)-1)
		for i, arg := range found[1:] {
			if zh, ok := Problem(arg); ok {
				arg = zh
			}
			args[i] = arg
		}
		return fmt.Sprintf(p.chinese, args...), true
	}
	return "", false
}
