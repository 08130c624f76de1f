package console

import (
	"maps"
	"slices"
)

// RuleIDs are the numbers of the rules that have a sentence in Chinese, sorted.
func RuleIDs() []string { return slices.Sorted(maps.Keys(ruleTexts)) }

// ruleTexts are the sentences of the rules in Chinese, by their numbers. A test compares the numbers with the rules that a check judges.
var ruleTexts = map[string]string{
	"I1":  "每个任务的日志以接受开始，每一步从上一步的终点开始，并且是契约第 2 节允许该方做出的变更",
	"I2":  "数据行中的状态、尝试次数、崩溃次数、栅栏号和下次重试时间与其最后一次变更一致",
	"I3":  "栅栏号在每次认领和接管时加一，其他情况下不变",
	"I4":  "只有持有者凭其栅栏号和时间线才能结束一次运行；人可以取消和挂起，崩溃上限可以终止它",
	"I5":  "一个栅栏号的运行最多由一次变更结束",
	"I6":  "接管发生在前一次认领的租约到期之后，每次认领都有租约",
	"I7":  "尝试次数只在失败时增加，不超过任务上限，重放或恢复后从 0 开始",
	"I8":  "崩溃次数只在接管时增加，达到上限者为 DEAD，重放或恢复后从 0 开始",
	"I9":  "失败的任务恰好等待 min(base·2^(尝试次数−1), max)；只有 RETRYING 有下次重试时间",
	"I10": "重试不会早于其时间开始",
	"I11": "SUCCEEDED 之后没有变更，DEAD 和 CANCELLED 之后只有人发起的重放",
	"I12": "已接受的内容不会丢失：任务、文档和文件都在，文件的 SHA-256 与记录一致，且没有无数据行的文件",
	"I13": "每个任务都来自一个请求，或注明创建它的来源",
	"I14": "每个用户的每个 Idempotency-Key 对应一个任务；相同内容得到同一任务，不同内容被拒绝",
	"I15": "QUEUED 任务有投递，或在唤醒时间之后的一次扫描内被再次承诺；任务只由投递启动",
	"I16": "事件只有在代理确认之后才是 SENT，并如此记录",
	"I17": "持有者只在其认领结果提交之后才确认投递",
	"I18": "每个 DEAD 任务都有死信，每封死信在其任务日志中都有对应的终止",
	"I19": "每个待处理的投递都指向已知任务，没有条目的投递不会留下",
	"I20": "消费组仍需要的内容不会被裁剪",
	"I21": "Kafka 已提交的位移在日志范围之内，且不会回退",
	"I22": "镜像中有每个未结束任务的副本，或有数据行说明原因；已结束的任务没有副本",
	"I23": "版本只因其任务成功而可见，每个文档最多一个，版本号递增",
	"I24": "曾有可见版本且未被删除的文档现在仍有可见版本",
	"I25": "可见版本有分段 0…n−1，每段有文本以及维度、文档和版本正确的向量，每个元数据键有一行；存储中没有 SQL 未指向的向量",
	"I26": "分段、命中和付费调用都属于日志已知的认领",
	"I27": "相同内容在相同设置下得到相同分段",
	"I28": "完成的批次只付费一次；崩溃、丢失应答或中途结束的运行只重付当时在途的部分",
	"I29": "已删除的文档不再存在：应答之后不再命中，一次扫描之后没有任务、分段和文件",
	"I30": "只有所有者或运维人员可更改任务，搜索只返回调用者的文档，文档与其知识库、任务和文件属于同一用户，用户 ID 不会混淆",
	"I31": "分区租约互斥，纪元递增，读取和结算都带有最新纪元",
	"I32": "同一键的首次投递以及同一文档的版本按其分区的顺序开始",
	"I33": "已发布的状态不会从 completed 回退，其时间也不会",
	"I34": "/internal/tasks/stats 的计数与 SQL 一致",
	"I35": "观察者按顺序看到日志的一部分直到结束，不会两次看到不同内容",
	"I36": "任何消息、错误或日志行中都没有机密",
	"I37": "每个可见分段都在其知识库的全文索引中且文本哈希一致，索引的各部分完整",
	"I38": "每个要被唤醒的任务都由其状态的一次调用指明，且该调用不晚于它唤醒",
	"I39": "已结束的工作流任务在 workflow_runs 中有一行，状态和结果一致，其他任务没有",
	"I40": "每个失败的任务在其原因下计数一次，其他任务不计，每组的数量与所记一致",
	"I41": "在每种状态、每个用户和知识库中，计数的任务数与实际一致",
	"L1":  "静止时每个任务已结束、为 SUSPENDED，或为 RETRYING 且到期时间在未来",
	"L2":  "租约过期的时间不会超过一个租约加一次恢复扫描",
	"L3":  "事件等待的时间不会超过转发所需；静止时发件箱已清空",
	"L4":  "静止时已结束的任务没有待处理的投递",
	"L5":  "静止时消费组已得到每个条目：没有失聪的工作进程",
	"L6":  "Redis 丢失之后，每个等待的任务在 15 秒内被再次承诺",
}

// NotJudgedWhys are the reasons for which a rule could not judge that have words in Chinese, sorted.
func NotJudgedWhys() []string { return slices.Sorted(maps.Keys(notJudgedTexts)) }

// notJudgedTexts are these reasons in Chinese, by the words of package fsck. A test compares them with those that fsck says.
var notJudgedTexts = map[string]string{
	"only with the history":                        "仅在同时检查任务日志时判断",
	"needs RABBITMQ_URL, where the copies are":     "需要 RABBITMQ_URL，副本在那里",
	"the outbox is empty":                          "发件箱为空",
	"no client log":                                "没有客户端日志",
	"the client log does not say that it is whole": "客户端日志没有说明自己是完整的",
	"no log of the partitioned queue":              "没有分区队列的日志",
	"the dead letter stream is off":                "死信流已关闭",
	"no queue to look at":                          "没有可查看的队列",
	"not the transport of Kafka":                   "传输方式不是 Kafka",
	"needs a world at rest":                        "需要系统处于静止状态",
	"Kafka keeps no list of pending deliveries, and its retention asks no group": "Kafka 不保存待处理投递的列表，其保留策略也不考虑消费组",
	"the log has no horizon":                     "日志没有界限",
	"no log of effects":                          "没有付费调用的日志",
	"no log of acknowledgements":                 "没有确认的日志",
	"needs a gateway to ask and a world at rest": "需要可询问的网关，且系统处于静止状态",
}
